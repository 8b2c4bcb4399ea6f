"""Runs cells: arm the fault, begin the operation, see how it ends, and look whether everything is as it must be."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from elasticfsm.compile import COORDINATOR
from elasticfsm.errors import DeadlineExpired, ElasticError

from ..changes import change_of
from ..deployment.deaths import SILENCE
from ..operation import Operation
from .cells import Cell
from .feeder import Feeder
from .hosted import Hosted
from .result import Result, Waker
from .rig import ANSWERS, LARGE, SMALL, Rig, Rigged
from .rules import allowed

NEVER = "the fault was never met: nothing came to this state"
TRIES = 3
EARLY = ("", "planning", "recording", "launching")  # where a cancel would leave no engine anything to undo


class Suite:
    """Runs cells one after the other in a deployment that is re-used as long as outcomes let it."""

    def __init__(self, rig: Rig, say: Callable[[Result], None] = lambda result: None) -> None:
        self.rig = rig
        self._hosted = Hosted(rig)
        self._say = say

    def run(self, cells: Iterable[Cell], within: float = float("inf")) -> list[Result]:
        """All that begin within so many seconds; the order is that in which they fit to the size that serves."""
        results = []
        end = time.monotonic() + within
        for cell in _in_fitting_order(list(cells)):
            if time.monotonic() > end:
                break
            result = self.one(cell)
            self._say(result)
            results.append(result)
        left = self.shut()
        if left and results:
            results[-1].problems += left
        return results

    def shut(self) -> list[str]:
        """Close whatever is open; returns what it left behind."""
        return self.rig.shut() + self._hosted.shut()

    def one(self, cell: Cell) -> Result:
        """One cell; again when a cancel came too late to lead into its state."""
        for _ in range(TRIES if cell.cancel else 1):
            result = self._once(cell)
            if NEVER not in result.problems:
                break
        return result

    def _once(self, cell: Cell) -> Result:
        result = Result(
            name=cell.name,
            operation=cell.operation,
            role=cell.role,
            machine=cell.machine,
            where=cell.state or f"<{cell.message}>",
            kind=cell.kind,
            allowed=allowed(cell),
        )
        begun = time.monotonic()
        alone = _alone(cell)
        result.problems += self.rig.shut() if alone else self._hosted.shut()  # one deployment at a time
        try:
            if alone:
                self._hosted.perform(cell, result)
            else:
                self._perform(cell, result)
        except ElasticError as error:
            result.problems.append(f"{type(error).__name__}: {error}")
            result.problems += self._hosted.shut() if alone else self.rig.shut()
        result.seconds = round(time.monotonic() - begun, 2)
        return result

    def _perform(self, cell: Cell, result: Result) -> None:
        deployment = self.at(SMALL if cell.operation == "scale_up" else LARGE)
        before = deployment.members
        target = LARGE if cell.operation == "scale_up" else SMALL
        gone = before[-1:] if target < len(before) else ()
        feeder = Feeder(deployment, self.rig.questions)
        if not cell.quiet:
            feeder.start()
        self.rig.post.arm(cell.fault(before, self.rig.timescale))
        with Waker(self.rig, cell):
            operation = deployment.scale(target, gone)
            self._cancel(cell, operation)
            if cell.quiet:
                self._wake(cell, feeder)
            try:
                record = operation.wait(self.rig.limit())
                result.outcome, result.error = record.phase, record.error
            except DeadlineExpired as expired:
                result.outcome = "hang"
                result.problems.append(str(expired))
        self._after(cell, deployment, before, feeder, result)

    def _after(self, cell: Cell, deployment: Rigged, before: tuple[str, ...], feeder: Feeder, result: Result) -> None:
        problems = result.problems
        claimed = self.rig.post.claimed()
        if claimed is None:
            problems.append(NEVER)
        self.rig.post.clear()
        if claimed is not None and cell.kind in ("kill", "hang") and claimed.engine in before:
            problems += self._said_dead(deployment, claimed.engine)
        if result.outcome not in (*result.allowed, "hang"):
            problems.append(f"outcome {result.outcome}, allowed: {', '.join(result.allowed)}")
        if result.outcome == "failed" and not result.error:
            problems.append("it failed and nobody said why")
        if not deployment.failed and result.outcome != "failed":
            with suppress(ElasticError):
                feeder.ask(7)
        problems += feeder.stop(ANSWERS)
        problems += self.rig.judge(feeder.streams, bool(deployment.failed))
        if deployment.failed or result.outcome in ("failed", "hang"):
            problems += self.rig.shut()
        else:
            after = operation_members(deployment, before, result.outcome)
            problems += self.rig.agree(deployment, after)
            if problems:
                problems += self.rig.shut()

    def _said_dead(self, deployment: Rigged, engine: str) -> list[str]:
        """The death of an engine that served is noticed and said, by name; one that has left is none of them."""
        left = engine not in deployment.members
        said = self.rig.until_clean(
            lambda: [] if f"engine {engine}" in deployment.failed else [f"nobody said that engine {engine} died"],
            SILENCE * self.rig.timescale + 3,
        )
        return [] if left else said

    def at(self, size: int) -> Rigged:
        """A deployment of that size: the one that runs, rescaled if it must be, or a new one."""
        self._hosted.shut()
        deployment = self.rig.deployment
        if deployment is not None and len(deployment.members) != size:
            record = deployment.scale(size).wait(60)
            if record.phase != "completed":
                raise ElasticError(f"the operation after a cell ended as {record.phase}: {record.error}")
        return deployment or self.rig.open(size)

    def _cancel(self, cell: Cell, operation: Operation) -> None:
        after = cell.lead is not None and cell.lead.cancel
        if cell.cancel or after:
            end = time.monotonic() + 10
            while not (self.rig.post.led() if after else operation.record.detail not in EARLY):
                if time.monotonic() > end:
                    return
                time.sleep(0.01)
            operation.cancel()

    def _wake(self, cell: Cell, feeder: Feeder) -> None:
        """Requests come and go while the operation runs, so that engines fall asleep and wake."""
        end = time.monotonic() + 5
        number = 0
        while self.rig.post.claimed() is None and time.monotonic() < end:
            number += 1
            with suppress(ElasticError):
                feeder.ask(number).wait(5)
            time.sleep(0.05)


def operation_members(deployment: Rigged, before: tuple[str, ...], outcome: str) -> tuple[str, ...]:
    """Who must serve after an operation that ended so."""
    current = deployment.operations.current
    return change_of(current.record).members if outcome == "completed" and current is not None else before


def _in_fitting_order(cells: list[Cell]) -> Iterable[Cell]:
    """Growth and shrinking in turn where both are wanted, so that few operations only make the size fit."""
    for alone in (False, True):
        mine = [cell for cell in cells if _alone(cell) == alone]
        up = [cell for cell in mine if cell.operation == "scale_up"]
        down = [cell for cell in mine if cell.operation == "scale_down"]
        for pair in itertools.zip_longest(up, down):
            yield from (cell for cell in pair if cell is not None)


def _alone(cell: Cell) -> bool:
    """Whether the coordinator needs a process of its own."""
    return cell.role == COORDINATOR and cell.kind in ("kill", "stop")


def again(cells: list[Cell], share: float, seed: int) -> list[Cell]:
    """A random share of the cells."""
    return random.Random(seed).sample(cells, round(len(cells) * share)) if cells else []
