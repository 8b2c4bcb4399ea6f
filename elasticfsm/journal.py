"""What happened in one engine: one JSON line per event, in one file per engine, written beside the work.

`put` only appends to a queue (under a microsecond); a thread encodes and writes every few hundredths of a second, and
`flush` does so at once. A killed process loses what was put within that time; `sync` loses nothing. What the disk
refuses is kept and tried again, up to a limit, and nobody who only puts events hears of it; `sync` raises.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from elasticfsm.errors import ElasticError

Event = dict[str, Any]

_HEAD: dict[str, Any] = {"t": int, "engine": str, "operation": str, "machine": str, "event": str}
_COLLECTIVE: dict[str, type] = {"group": str, "op": str, "of": str}
# What readers of journals rely on, by event; other fields may come or lack.
_FIELDS: dict[str, dict[str, Any]] = {
    "enter": {"state": str, "came": str},
    "leave": {"state": str, "guard": str, "to": str},
    "send": {"message": str},
    "arrived": {"message": str, "source": str},
    "step.begin": {"state": str, "step": str},
    "step.end": {"state": str, "step": str},
    "collective.before": _COLLECTIVE,
    "collective.after": _COLLECTIVE,
    "dropped": {"collectives": list},
    "dead": {"source": str},
    "generation": {"of": str, "members": list},
    "agreed": {"of": str, "number": int | str, "votes": list, "cast": list, "answer": object},
    "refused": {"got": object, "group": str, "step": str, "expected": object},
    "failed": {"error": str},
    "unhandled": {"state": str, "error": str},
    "operation.end": {"end": str},
}

_DELAY = 0.05  # seconds between two batches of the writer thread
_KEPT = 4 * 1024 * 1024  # bytes that wait for a disk which takes nothing; events beyond are lost and counted


class JournalFull(ElasticError):
    """The disk did not take what had to be on it; the text says which file, and why."""


class Journal:
    """The journal `DIRECTORY/ENGINE.jsonl` of one engine, appended to; any thread may put events.

    `operation` and `generation` are stamped on every event; whoever runs the machines keeps them up to date.
    """

    def __init__(
        self, directory: Path | str, engine: str, instance: str, clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.path = Path(directory) / f"{engine}.jsonl"
        self.engine = engine
        self.instance = instance
        self.operation = ""
        self.generation = 0
        self.fault: OSError | None = None  # why the last write failed
        self.lost = 0  # events that no disk has taken and that are not kept any more
        self._unwritten = b""
        self._clock = clock
        self._wall = time.time_ns() - clock()
        self._queue: deque[tuple[int, str, int, str, str, Mapping[str, Any]]] = deque()
        self._armed = False
        self._closed = False
        self._due = threading.Event()
        self._writing = threading.Lock()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("ab", buffering=0)
        self._thread = threading.Thread(target=self._write, name=f"journal {engine}", daemon=True)
        self._thread.start()
        atexit.register(self.close)

    def put(self, event: str, machine: str = "", /, **fields: Any) -> None:
        """Notes an event; never blocks, never fails. Values are what JSON can hold."""
        self.note(event, machine, fields)

    def note(self, event: str, machine: str, fields: Mapping[str, Any], /) -> None:
        """As `put`, with fields that never change: nothing is copied, for what happens many times a step."""
        self._queue.append((self._clock(), self.operation, self.generation, machine, event, fields))
        if not self._armed:
            self._armed = True
            self._due.set()

    def flush(self) -> None:
        """Writes all that was put before; returns when the operating system has it, or refuses it."""
        with self._writing:
            self._save()

    def sync(self) -> None:
        """Writes all that was put before; returns when the disk has it. JournalFull when it does not take it."""
        with self._writing:
            try:
                self._save()
                if self.fault is None:
                    os.fsync(self._file.fileno())
            except OSError as error:
                self.fault = error
            if self.fault is not None:
                raise JournalFull(f"{self.path}: {self.fault.strerror}; what must be on disk is not") from self.fault

    def _save(self) -> None:
        lines = self._encode()
        if self._file.closed:
            return
        if len(self._unwritten) > _KEPT:
            self.lost += len(lines)
        elif lines:
            self._unwritten += b"\n".join(lines) + b"\n"
        self.fault = None
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[self._file.write(self._unwritten) :]
        except OSError as error:  # a full disk is no reason to stop an engine
            self.fault = error

    def close(self) -> None:
        """Writes everything and ends the thread; idempotent. What is put afterwards is lost."""
        if self._closed:
            return
        self.put("close")
        self._closed = True
        atexit.unregister(self.close)
        self._due.set()
        self._thread.join(5)
        self.flush()
        with self._writing:
            self._file.close()

    def _write(self) -> None:
        while not self._closed:
            self._due.wait()
            self._due.clear()
            if not self._closed:
                time.sleep(_DELAY)  # a batch a time: the hot path must not pay for encoding
                self._armed = False
                self.flush()

    def _encode(self) -> list[bytes]:
        lines = []
        while self._queue:
            t, operation, generation, machine, event, fields = self._queue.popleft()
            head = {
                "t": t,
                "wall": (t + self._wall) / 1e9,
                "engine": self.engine,
                "instance": self.instance,
                "operation": operation,
                "generation": generation,
                "machine": machine,
                "event": event,
            }
            lines.append(_json({**head, **fields}))
        return lines


def _json(event: Event) -> bytes:
    return msgspec.json.encode(event, enc_hook=_plain)


def _plain(value: Any) -> str:
    """What JSON has no word for is written as text: a journal must never fail because of a value."""
    return str(value)


def read(directory: Path | str) -> dict[str, list[Event]]:
    """The events of every engine whose journal lies in a directory, in the order in which they happened there.

    A last line that a dying process did not finish is left out; any other line that is no event raises `ElasticError`.
    """
    paths = sorted(Path(directory).glob("*.jsonl"))
    if not paths:
        raise ElasticError(f"{directory}: no journals (*.jsonl) here; give the directory that a run wrote")
    return {path.stem: _events(path) for path in paths}


def _events(path: Path) -> list[Event]:
    lines = path.read_bytes().split(b"\n")
    events: list[Event] = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            event = msgspec.json.decode(line, type=Event)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if number != len(lines):  # the last line of a finished journal is empty
                raise ElasticError(f"{path}:{number}: not an event: {error}") from error
            continue
        if wrong := _wrong(event):
            raise ElasticError(f"{path}:{number}: not an event: {wrong}")
        events.append(event)
    return events


def _wrong(event: Event) -> str:
    """What an event lacks that its readers rely on, in words; "" when it has everything."""
    kind = event.get("event")
    fields = _HEAD | (_FIELDS.get(kind, {}) if isinstance(kind, str) else {})
    for name, expected in fields.items():
        if name not in event:
            return f"it has no `{name}`"
        if not isinstance(event[name], expected):
            return f"its `{name}` is {event[name]!r}, expected {getattr(expected, '__name__', expected)}"
    return ""


def merged(journals: dict[str, list[Event]]) -> list[Event]:
    """The events of all engines in one list, by time; the clock is that of one machine."""
    return sorted((event for events in journals.values() for event in events), key=lambda event: int(event["t"]))
