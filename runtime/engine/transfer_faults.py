"""Faults of a transfer while bytes are really under way: the source dies, stands still, frees; the reader lets go.

Engine e1 reads, engine e0 is read from. When `armed` lies in a directory, and a read of e1 from e0 was posted and is
not done (or, with the text `before`, will be posted next), e1 writes `flying` there and waits for `go`, whose text says
what shall happen: `kill`, `stop`, `free` or `release`. Afterwards e1 compares all of its slots with the checkpoint, at
once and again when late bytes have had time to land.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticfsm.errors import DeadlineExpired, TransferError

from ..deadline import SLICE, Cancelled, Deadline
from ..experts.rebalance import Experts
from ..experts.state import ExpertState, Part, region

IN_FLIGHT = "in-flight="  # followed by the directory
SOURCE, READER = "e0", "e1"
LATE_SECONDS = 0.3  # after which what still lands has landed
HELD_SECONDS = 20.0
RUBBISH = 1e6


class _Flying(Deadline):
    """A deadline that calls `act` once, when somebody first waits for what `posted` says is under way."""

    def __init__(self, like: Deadline, posted: Callable[[], bool], act: Callable[[], None]) -> None:
        super().__init__(like.within, like.what, like._cancelled)
        self._posted, self._act = posted, act
        self._acted = False

    def slice(self, longest: float = SLICE) -> float:
        """See Deadline.slice."""
        if not self._acted and self._posted():
            self._acted = True
            self._act()
        return super().slice(longest)


class WoundedReader(Experts):
    """Experts of e1."""

    directory: Path

    def __init__(self, state: ExpertState, cancelled: Cancelled = None) -> None:
        super().__init__(state, cancelled)
        self._done = ""

    def deadline(self, part: Part, cancelled: Cancelled) -> Deadline:
        """The usual one, with the wound in it."""
        usual = super().deadline(part, cancelled)
        if not self._reads_from_source(part):
            return usual
        return _Flying(usual, lambda: self._state.reads is not None and self._armed() == "in flight", self._wound)

    def read(self, role: str = "engine", cancelled: Cancelled = None) -> None:
        """Read; after a wound, say so and look at every slot."""
        self._done = ""
        if self._armed() == "before" and self._reads_from_source(self._state.part()):
            self._wound()
        try:
            super().read(role, cancelled)
        finally:
            if self._done:
                self._say(f"{self._done}-over")
                if self._done == "free":
                    self._await("restored")
                for why in ("wounded", "wounded, late"):
                    self._state.ended(self._state, why)
                    time.sleep(LATE_SECONDS)
                self._say(f"{self._done}-looked")

    def _reads_from_source(self, part: Part) -> bool:
        generation, per_rank = self._state.members("active"), self._state.slots_per_rank
        rows = [move for move in part.moves if move.destination // per_rank == generation.rank]
        return any(generation.members[move.source // per_rank] == SOURCE for move in rows)

    def _armed(self) -> str:
        armed = self.directory / "armed"
        return armed.read_text() if armed.exists() else ""

    def _wound(self) -> None:
        (self.directory / "armed").unlink()
        self._say("flying")
        what = self._await("go")
        (self.directory / "go").unlink()
        self._done = what
        if what == "release":
            raise DeadlineExpired("the read was let go of on purpose")
        if what == "free":
            self._say("free")
            self._await("freed")
        elif what in ("kill", "stop"):
            victim = int((self.directory / "pid").read_text())
            os.kill(victim, signal.SIGKILL if what == "kill" else signal.SIGSTOP)

    def _say(self, name: str) -> None:
        (self.directory / name).touch()

    def _await(self, name: str) -> str:
        return wait_for(self.directory / name)


class WoundedSource(Experts):
    """Experts of e0: on `free` it takes its offer back and writes rubbish over the rows, until it is told to restore.

    So a test has to keep it from stepping meanwhile: experts move between steps, not beside them.
    """

    directory: Path

    def __init__(self, state: ExpertState, cancelled: Cancelled = None) -> None:
        super().__init__(state, cancelled)
        (self.directory / "pid").write_text(str(os.getpid()))
        threading.Thread(target=self._obey, name="wounds", daemon=True).start()

    def _obey(self) -> None:
        try:
            wait_for(self.directory / "free", 1000.0)
        except TransferError:
            return
        state = self._state
        layer = state.pending[0]
        slots = [state.memory.slot_tensors(layer, slot) for slot in range(state.slots_per_rank)]
        tensors: list[Any] = [tensor for kind in zip(*slots, strict=True) for tensor in kind]
        kept = [tensor.clone() for tensor in tensors]
        state.transfer.withdraw(region(layer))
        for tensor in tensors:
            tensor.fill_(RUBBISH)
        (self.directory / "freed").touch()
        wait_for(self.directory / "free-over")
        for tensor, was in zip(tensors, kept, strict=True):
            tensor.copy_(was)
        state.transfer.offer(region(layer), tensors)
        (self.directory / "restored").touch()


def wounded(engine: str) -> type[Experts]:
    """The experts adapter of one of the two engines; its `directory` has to be set."""
    return WoundedReader if engine == READER else WoundedSource


def wait_for(path: Path, seconds: float = HELD_SECONDS) -> str:
    """Wait for a file and return its text; raises TransferError when it does not come."""
    end = time.monotonic() + seconds
    while not path.exists():
        if time.monotonic() > end:
            raise TransferError(f"nobody wrote {path}")
        time.sleep(0.005)
    return path.read_text()
