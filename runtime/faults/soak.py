"""Rescales in a row along a random path, with faults in one third of them: nothing is lost, wrong, or left behind."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from elasticfsm.compile import COORDINATOR
from elasticfsm.errors import ElasticError

from ..bench.rescales import path
from ..operation import Operation
from . import holdings
from .cells import Cell, all_cells
from .feeder import Feeder
from .result import Waker
from .rig import ANSWERS, Rig, Rigged
from .rules import allowed

SHARE = 1 / 3  # of rescales with a fault
LARGEST = 4
GROWTH = {"descriptors": 3.0, "threads": 1.0, "memory": 15.0}  # per hundred rescales; more is a leak
ENOUGH = 60  # rescales in a row, from which on growth is judged
CLOSED_LOOP = (2, 4, 2, 3, 1)
CLIENTS = 20


class Slope(msgspec.Struct):
    """How something grows per hundred rescales, beside what it was at the begin; sizes are levelled out."""

    of: str
    begin: float
    per_hundred: float


class Soak(msgspec.Struct, kw_only=True):
    """What came of it. Of the `faults` that waited, by kind, so many were `met`: not every path leads to each state."""

    seed: int
    first: int = 0
    rescales: int = 0
    outcomes: dict[str, int] = {}
    faults: dict[str, int] = {}
    met: int = 0
    requests: int = 0
    problems: list[str] = []
    slopes: list[Slope] = []
    loop_requests: int = 0
    loop_problems: list[str] = []
    journals: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether nothing was lost, wrong or left."""
        return not self.problems and not self.loop_problems


def run(
    count: int,
    seed: int,
    timescale: float,
    within: float,
    say: Callable[[str], None],
    first: int = 0,
    loop: bool = True,
) -> Soak:
    """All of it, or what begins `within` so many seconds; blocks. Whatever happens, no process is left.

    Rescale number n of a seed is always the same, with the same fault: a part of the path begins at `first`.
    """
    begun = time.monotonic()
    rig = Rig(timescale)
    made = Soak(seed=seed, first=first)
    try:
        rig.learn_answers()
        if count:
            _Path(rig, made, say).walk(count, begun + within)
        if loop and not made.problems:
            _closed_loop(rig, made, say)
        if not made.ok:
            made.journals = _kept(rig)
    finally:
        rig.close()
    made.seconds = round(time.monotonic() - begun, 1)
    return made


def _kept(rig: Rig) -> str:
    """What the run has written, where it stays."""
    place = tempfile.mkdtemp(prefix="soak-")
    shutil.copytree(rig.scratch, place, dirs_exist_ok=True)
    return place


class _Path:
    """The random path."""

    def __init__(self, rig: Rig, made: Soak, say: Callable[[str], None]) -> None:
        self._rig = rig
        self._made = made
        self._say = say
        self._random = random.Random()
        self._cells = [cell for cell in all_cells() if _harmless(cell)]
        self._outcomes: Counter[str] = Counter()
        self._faults: Counter[str] = Counter()
        self._samples: dict[str, list[tuple[int, int, float]]] = defaultdict(list)

    def walk(self, count: int, end: float) -> None:
        """So many changes of size; those that faults abort count, too. None begins after `end`."""
        made = self._made
        sizes = path(made.first + count, made.seed, largest=LARGEST)[made.first :]
        deployment = self._rig.open(sizes[0], slots=16, eplb_interval=40)
        for number, wanted in enumerate(sizes[1:], made.first):
            if time.monotonic() > end:
                break
            self._random.seed(f"{made.seed} {number}")
            size = len(deployment.members)
            target = wanted if wanted != size else wanted % LARGEST + 1
            begun = time.monotonic()
            name, outcome, problems = self._rescale(deployment, target)
            self._say(f"{number}: {size} -> {target}: {outcome} in {time.monotonic() - begun:.1f} s ({name})")
            made.problems += [f"seed {made.seed}, rescale {number} ({size} -> {target}): {name}: {p}" for p in problems]
            made.rescales += 1
            if problems:
                break
            self._sample(number, deployment)
        made.outcomes, made.faults = dict(self._outcomes), dict(self._faults)
        made.slopes = [_slope(of, samples) for of, samples in self._samples.items()]
        made.problems += _leaks(made)
        made.problems += self._rig.shut()

    def _rescale(self, deployment: Rigged, target: int) -> tuple[str, str, list[str]]:
        """One change of size: its fault, its outcome and what is wrong."""
        before = deployment.members
        cell = self._fault(len(before), target) if self._random.random() < SHARE else None
        gone = self._leaving(before, target)
        feeder = Feeder(deployment, self._rig.questions)
        feeder.start()
        if cell is not None:
            self._rig.post.arm(cell.fault(before, self._rig.timescale, self._victims(cell, before, gone)))
            self._faults[cell.kind] += 1
        name = cell.name if cell is not None else "no fault"
        try:
            operation = deployment.scale(target, gone)
            outcome = self._end(cell, operation)
        except ElasticError as error:
            return name, "undecided", [str(error), *feeder.stop(ANSWERS)]
        if cell is not None and self._rig.post.claimed() is not None:
            self._made.met += 1
        elif cell is not None:
            name += ", which nobody came to"
        self._rig.post.clear()
        self._outcomes[outcome] += 1
        problems = [] if outcome in ("completed", "aborted") else [f"{outcome}: {operation.record.error}"]
        problems += feeder.stop(ANSWERS)
        problems += self._rig.judge(feeder.streams, False)
        self._made.requests += len(feeder.streams)
        if outcome != "completed" and cell is None:
            problems.append(f"{outcome} without a fault: {operation.record.error}")
        if not deployment.failed:
            after = before if outcome == "aborted" else _members(operation, before)
            problems += self._rig.agree(deployment, after)
        return name, outcome, problems

    def _leaving(self, before: tuple[str, ...], target: int) -> tuple[str, ...]:
        """Any but the first, which is looked at all the time."""
        chosen = self._random.sample(before[1:], max(0, len(before) - target))
        return tuple(engine for engine in before if engine in chosen)

    def _end(self, cell: Cell | None, operation: Operation) -> str:
        if cell is None:
            return operation.wait(self._rig.limit()).phase
        with Waker(self._rig, cell):
            if cell.cancel:
                operation.cancel()
            return operation.wait(self._rig.limit()).phase

    def _fault(self, size: int, target: int) -> Cell:
        name = "scale_up" if target > size else "scale_down"
        cells = [cell for cell in self._cells if cell.operation == name]
        return self._random.choice(cells)

    def _victims(self, cell: Cell, before: Sequence[str], gone: Sequence[str]) -> tuple[str, ...]:
        match cell.role:
            case "existing" | "remaining":
                return (self._random.choice([engine for engine in before if engine not in gone]),)
            case "removing":
                return (self._random.choice(list(gone)),)
            case "coordinator":
                return ("coordinator",)
            case _:
                return (before[0],) if cell.role == "rank 0" else ()

    def _sample(self, number: int, deployment: Rigged) -> None:
        """This process, and the engine that stays all the time."""
        first = deployment.members[0]
        for who, pid in (("coordinator", 0), (f"engine {first}", deployment.status().pids.get(first, 0))):
            held = holdings.of_process(pid)
            for what in held._fields:
                self._samples[f"{what} of {who}"].append((number, len(deployment.members), getattr(held, what)))


def _harmless(cell: Cell) -> bool:
    """A fault that the protocol promises to survive."""
    alone = cell.role == COORDINATOR and cell.kind in ("kill", "stop")
    return "failed" not in allowed(cell) and not alone and cell.kind != "disk" and not cell.quiet and not cell.lead


def _members(operation: Operation, before: tuple[str, ...]) -> tuple[str, ...]:
    from ..changes import change_of

    return change_of(operation.record).members or before


def _slope(of: str, samples: Sequence[tuple[int, int, float]]) -> Slope:
    """Least squares over the second half of the run, each size with a level of its own: warming up is no leak."""
    late = samples[len(samples) // 2 :]
    sizes = sorted({size for _, size, _ in late})
    rows = [[number, *(float(size == each) for each in sizes)] for number, size, _ in late]
    values = [value for _, _, value in late]
    slope = float(np.linalg.lstsq(np.array(rows), np.array(values), rcond=None)[0][0]) if len(late) > 5 else 0.0
    return Slope(of, round(samples[0][2], 1), round(100 * slope, 2))


def _leaks(made: Soak) -> list[str]:
    """What grew more than the levels of a process that does the same all the time do."""
    if made.rescales < ENOUGH:
        return []
    return [
        f"seed {made.seed}: {slope.of} grow by {slope.per_hundred} per hundred rescales"
        for slope in made.slopes
        if slope.per_hundred > GROWTH[slope.of.partition(" ")[0]]
    ]


def _closed_loop(rig: Rig, made: Soak, say: Callable[[str], None]) -> None:
    """Many clients in a closed loop along a path without faults: none may fail."""
    deployment = rig.open(CLOSED_LOOP[0], slots=16)
    feeder = Feeder(deployment, rig.questions, CLIENTS)
    feeder.start()
    for size in CLOSED_LOOP[1:]:
        time.sleep(1.0)
        record = deployment.scale(size).wait(rig.limit())
        if record.phase != "completed":
            made.loop_problems.append(f"to {size}: {record.phase}: {record.error}")
    time.sleep(1.0)
    made.loop_problems += feeder.stop(2 * ANSWERS)
    made.loop_problems += rig.judge(feeder.streams, False)
    made.loop_requests = len(feeder.streams)
    say(f"{CLIENTS} clients during {' -> '.join(map(str, CLOSED_LOOP))}: {made.loop_requests} requests")
    made.loop_problems += rig.shut()
