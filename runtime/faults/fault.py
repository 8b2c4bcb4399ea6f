"""One fault: what happens, to whom, and where. It waits in a file until the first engine that meets it claims it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import msgspec

Kind = Literal["kill", "stop", "hang", "exception", "delay", "drop", "duplicate", "late", "store", "disk"]
WIRE: tuple[Kind, ...] = ("drop", "duplicate", "late")


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Fires once, when `machine` enters `state`, or when `message` is sent by `machine`; on one of `engines` (any: ()).

    kill: SIGKILL to the own process. stop: SIGSTOP; somebody else sends SIGCONT after `seconds`. hang: the same, but
    nobody does. exception: the first step of the state raises. delay: it begins `seconds` later. drop: the message is
    lost on the wire, `seconds` long. duplicate: it goes out twice. late: it goes out after `seconds`. store: the store
    is closed. disk: from then on the journal lies on a full disk. When it has fired, `then` waits in its place.
    """

    kind: Kind
    machine: str
    state: str = ""
    message: str = ""
    engines: tuple[str, ...] = ()
    seconds: float = 0.0
    then: Fault | None = None


class Claimed(msgspec.Struct, frozen=True):
    """That a fault has fired: in which process, when (monotonic seconds)."""

    engine: str
    pid: int
    at: float


class Post:
    """Where a fault waits: a directory that the suite and all processes of a deployment share."""

    def __init__(self, directory: Path) -> None:
        self._armed = directory / "armed.json"
        self._claims = directory / "claimed.json"
        self._leads = directory / "led.json"
        self._seen: tuple[int, int] = (0, 0)
        self._fault: Fault | None = None

    def arm(self, fault: Fault) -> None:
        """Let a fault wait; an earlier claim is forgotten."""
        self.clear()
        self._put(fault)

    def clear(self) -> None:
        """Nothing waits any more, and nothing is claimed."""
        for path in (self._armed, self._claims, self._leads):
            path.unlink(missing_ok=True)

    def _put(self, fault: Fault) -> None:
        waiting = self._armed.with_suffix(".new")
        waiting.write_bytes(msgspec.json.encode(fault))
        waiting.rename(self._armed)

    def fault(self) -> Fault | None:
        """The fault that waits; reads the file only when it has changed."""
        try:
            found = self._armed.stat()
        except FileNotFoundError:
            self._fault = None
            return None
        seen = (found.st_mtime_ns, found.st_ino)
        if seen != self._seen:
            try:
                self._fault = msgspec.json.decode(self._armed.read_bytes(), type=Fault)
            except FileNotFoundError:
                return None
            self._seen = seen
        return self._fault

    def claim(self, engine: str, now: float) -> bool:
        """Take the fault that waits; False when somebody else was faster."""
        mine = self._armed.with_suffix(f".{os.getpid()}")
        try:
            self._armed.rename(mine)
        except FileNotFoundError:
            return False
        then = msgspec.json.decode(mine.read_bytes(), type=Fault).then
        mine.write_bytes(msgspec.json.encode(Claimed(engine, os.getpid(), now)))
        mine.rename(self._claims if then is None else self._leads)
        if then is not None:
            self._put(then)
        self._fault = None
        return True

    def claimed(self) -> Claimed | None:
        """Who took it, or of two the last one; None while that waits."""
        return self._read(self._claims)

    def led(self) -> Claimed | None:
        """Who took the first of two faults; None while it waits."""
        return self._read(self._leads)

    @staticmethod
    def _read(path: Path) -> Claimed | None:
        try:
            return msgspec.json.decode(path.read_bytes(), type=Claimed)
        except FileNotFoundError:
            return None
