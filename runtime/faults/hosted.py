"""Cells in which the coordinator's process is killed or stopped: engines serve on, and a new one decides."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec

from elasticfsm.errors import ElasticError
from elasticfsm.journal import read

from ..changes import change_of
from ..deployment import Status
from ..operation import ENDED
from ..router import Stream
from .cells import Cell
from .host import Host
from .result import Result, Waker
from .rig import ANSWERS, LARGE, SMALL, Rig

KEEP = 60.0  # seconds that engines wait for another coordinator
GRACE = 10.0  # seconds for a killed process to be gone


class Hosted:
    """Runs such cells; the deployment is re-used as long as its engines live."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self._host: Host | None = None
        self._directory = Path()
        self._journals = Path()
        self._opened = 0

    def perform(self, cell: Cell, result: Result) -> None:
        """One cell; ElasticError when the coordinator does not answer."""
        host = self._at(SMALL if cell.operation == "scale_up" else LARGE)
        before = self._look().members
        target = LARGE if cell.operation == "scale_up" else SMALL
        host.call({"do": "feed"})
        rig = self._rig
        rig.post.arm(cell.fault(before, rig.timescale))
        with Waker(rig, cell):
            begun = time.monotonic()
            with suppress(ElasticError):  # it may be killed before it answers
                host.call({"do": "scale", "size": target, "remove": before[-1:] if target < len(before) else ()})
                self._cancel(cell, host)
            self._until_claimed()
            if cell.kind == "kill":
                self._replace(before, result)
            status = self._ended(begun + rig.limit())
        self._judge(cell, status, before, result)

    def shut(self) -> list[str]:
        """End the deployment; returns what it left behind."""
        host, self._host = self._host, None
        if host is None:
            return []
        host.close()
        left = self._rig.until_clean(lambda: [f"engine process {pid} runs" for pid in self._living()], 10)
        for pid in self._living():
            self._rig.zygote.children[pid].kill()
        strange = {each.name for each in self._directory.glob("*.sock")} | {
            each.name for each in self._directory.glob(".*.new")
        }
        return left + [f"{self._directory.name}/{name} is left" for name in sorted(strange)]

    @property
    def _address(self) -> str:
        return f"ipc://{self._directory}/hub.sock"

    def _living(self) -> set[int]:
        return self._rig.zygote.living(self._address)

    def _at(self, size: int) -> Host:
        if self._host is not None and len(self._look().members) != size:
            members = self._look().members
            gone = members[-1:] if size < len(members) else ()
            self._host.call({"do": "scale", "size": size, "remove": gone})
            status = self._ended(time.monotonic() + self._rig.limit())
            if len(status.members) != size:
                raise ElasticError(f"the operation after a cell did not complete: {status.operation}")
        if self._host is None:
            self._opened += 1
            self._directory = self._rig.scratch / f"hosted-{self._opened}"
            options = self._rig.options(directory=str(self._directory), keep=KEEP)
            self._journals = Path(options.journal)
            command = {"do": "open", "size": size, "options": msgspec.to_builtins(options)}
            self._host = Host(self._rig.zygote, self._rig.scratch, command)
        return self._host

    def _look(self) -> Status:
        if self._host is None:
            raise ElasticError("there is no coordinator")
        return msgspec.convert(self._host.call({"do": "look"}), Status)

    def _cancel(self, cell: Cell, host: Host) -> None:
        if not cell.cancel:
            return
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            operation = self._look().operation
            if operation is not None and operation.detail not in ("", "planning", "recording", "launching"):
                break
            time.sleep(0.02)
        host.call({"do": "cancel"})

    def _until_claimed(self) -> None:
        end = time.monotonic() + self._rig.limit()
        while self._rig.post.claimed() is None and time.monotonic() < end:
            time.sleep(0.02)

    def _replace(self, before: tuple[str, ...], result: Result) -> None:
        """The coordinator is dead: look whether serving goes on, and start another one."""
        claimed = self._rig.post.claimed()
        host = self._host
        if host is None or claimed is None or not host.gone(GRACE):
            raise ElasticError("the coordinator was to be killed and was not")
        self._rig.post.clear()
        time.sleep(0.5)
        steps = [e for e in read(self._journals)[before[0]] if e["event"] == "agreed"]
        if steps and steps[-1]["answer"] == "work" and steps[-1]["t"] / 1e9 < claimed.at:
            result.problems.append("no engine has taken a step since the coordinator is dead")
        host.close()
        self._host = None
        self._host = Host(self._rig.zygote, self._rig.scratch, {"do": "resume", "directory": str(self._directory)})

    def _ended(self, limit: float) -> Status:
        while True:
            status = self._look()
            if status.operation is None or status.operation.phase in ENDED or time.monotonic() > limit:
                return status
            time.sleep(0.05)

    def _judge(self, cell: Cell, status: Status, before: tuple[str, ...], result: Result) -> None:
        record, host, problems = status.operation, self._host, result.problems
        result.outcome = "aborted" if record is None else record.phase if record.phase in ENDED else "hang"
        result.error = record.error if record is not None else "it was killed before anything was recorded"
        if result.outcome not in result.allowed:
            problems.append(f"outcome {result.outcome}, allowed: {', '.join(result.allowed)}")
        after = change_of(record).members if record is not None and result.outcome == "completed" else before
        if cell.kind == "kill" and host is not None:
            host.call({"do": "feed"})
            time.sleep(0.3)
        elif self._rig.post.claimed() is None:
            problems.append("the fault was never met: nothing came to this state")
        self._rig.post.clear()
        problems += self._answers()
        if result.outcome != "failed":  # an operation may fail on either side of its commit; a new deployment follows
            problems += self._rig.until_clean(lambda: self._rig.disagreements(self._look(), after, self._address))
        if problems or result.outcome == "failed":
            problems += self.shut()

    def _answers(self) -> list[str]:
        if self._host is None:
            return []
        found = self._host.call({"do": "collect", "within": ANSWERS}, ANSWERS + 10)
        streams = []
        for number, (prompt, tokens, outcome, reason) in enumerate(found["streams"]):
            made = Stream(f"h{number}", tuple(prompt), len(tokens))
            made.tokens, made.outcome, made.reason = list(tokens), outcome, reason
            streams.append(made)
        return [*found["complaints"], *self._rig.judge(streams, False)]
