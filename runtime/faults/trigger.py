"""The hook: a journal that hears where machines stand, and a tap on the wire. Both act on the fault that waits."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from elasticfsm.journal import Journal

from .. import wire
from .fault import Fault, Post

PLAN = "plan="  # followed by the directory of the post, among the faults of the options


class Injected(RuntimeError):
    """The exception that a fault raises: of no kind that the code knows."""


class Trigger:
    """What one process does when it meets a fault."""

    def __init__(
        self,
        directory: Path,
        engine: str,
        close_store: Callable[[], None] = lambda: None,
        fill_disk: Callable[[], None] = lambda: None,
    ) -> None:
        self.journal: Journal | None = None
        self._close_store = close_store
        self._fill_disk = fill_disk
        self._post = Post(directory)
        self._engine = engine
        self._losing: tuple[str, float] = ("", 0.0)

    def heard(self, event: str, machine: str, fields: dict[str, Any]) -> None:
        """An event was put into the journal; blocks, raises or ends the process when that is the fault."""
        if event not in ("enter", "step.begin"):
            return
        fault = self._met(machine)
        if (
            fault is None
            or fault.state != fields["state"]
            or (fault.kind in ("exception", "delay")) != (event == "step.begin")
        ):
            return
        if self._post.claim(self._engine, time.monotonic()):
            self._act(fault)

    def tap(self, data: bytes) -> list[float]:
        """A message goes out: after how many seconds each copy of it does."""
        now = time.monotonic()
        name = _name(data)
        if name == self._losing[0] and now < self._losing[1]:
            return []
        fault = self._post.fault()
        if fault is None or not fault.message or name != f"{fault.machine} {fault.message}":
            return [0.0]
        if (fault.engines and self._engine not in fault.engines) or not self._post.claim(self._engine, now):
            return [0.0]
        match fault.kind:
            case "drop":
                self._losing = (name, now + fault.seconds)
                return []
            case "duplicate":
                return [0.0, 0.0]
            case _:
                return [fault.seconds]

    def _met(self, machine: str) -> Fault | None:
        fault = self._post.fault()
        if fault is None or fault.message or fault.machine != machine:
            return None
        return fault if not fault.engines or self._engine in fault.engines else None

    def _act(self, fault: Fault) -> None:
        match fault.kind:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stop" | "hang":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "exception":
                raise Injected(f"injected into {fault.machine} in `{fault.state}`")
            case "delay":
                time.sleep(fault.seconds)
            case "store":
                self._close_store()
            case _:
                self._fill_journal()
                self._fill_disk()

    def _fill_journal(self) -> None:
        """The journal's file becomes one that the kernel refuses to write to: no space left on device."""
        journal = self.journal
        if journal is not None:
            full = os.open("/dev/full", os.O_WRONLY)
            os.dup2(full, journal._file.fileno())
            os.close(full)


class HearingJournal(Journal):
    """A journal that tells a trigger of every event, on the thread that put it."""

    trigger: Trigger | None = None

    def put(self, event: str, machine: str = "", /, **fields: Any) -> None:
        """See Journal.put."""
        super().put(event, machine, **fields)
        if self.trigger is not None:
            self.trigger.heard(event, machine, fields)


def journal_for(faults: tuple[str, ...], directory: str, engine: str, instance: str) -> tuple[Journal, Trigger | None]:
    """The journal of an engine, and its trigger if the faults name a post."""
    post = next((fault.removeprefix(PLAN) for fault in faults if fault.startswith(PLAN)), "")
    if not post:
        return Journal(directory, engine, instance), None
    journal = HearingJournal(directory, engine, instance)
    trigger = journal.trigger = Trigger(Path(post), engine)
    trigger.journal = journal
    return journal, trigger


def _name(data: bytes) -> str:
    """`machine message` of a message of the spec, empty for every other."""
    try:
        message = wire.decode(data)
    except (wire.WireError, msgspec.MsgspecError):
        return ""
    return f"{message.machine} {message.name}" if isinstance(message, wire.Protocol | wire.Wake) else ""
