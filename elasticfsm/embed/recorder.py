"""The journal of somebody else's engine: one JSON line per event, in the format of `elasticfsm.journal`.

`put` only appends; a daemon thread, started by the first event of an operation, encodes and writes every few hundredths
of a second. Between operations the last events are kept in memory and written when the next operation begins, or a step
is refused: a deployment that never rescales has no thread, and its file does not grow.
"""

from __future__ import annotations

import atexit
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

Line = tuple[str, str, dict[str, Any]]
Kept = tuple[int, str, int, dict[str, str], tuple[Line, ...]]

_DELAY = 0.05  # seconds between two batches
_RING = 4096  # events kept between operations


class Recorder:
    """The journal `DIRECTORY/ENGINE.jsonl`; any thread may put events. Nothing here raises: a fault is kept in `fault`.

    `operation` and `generation` are stamped on every event, and on one about a group what its name means now, as `of`:
    `names` maps active, standby and retired to generations; replace it, do not change it. What did not fit into memory
    between operations is counted by an event `dropped`, behind which the lines `again` are repeated.
    """

    def __init__(
        self, directory: Path | str, engine: str, instance: str = "", clock: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self.path = Path(directory) / f"{engine}.jsonl"
        self.engine, self.instance = engine, instance
        self.operation, self.generation = "", 0
        self.names: dict[str, str] = {}
        self.again: tuple[Line, ...] = ()
        self.live = False
        self.fault: Exception | None = None
        self._clock = clock
        self._wall = time.time_ns() - clock()
        self._incomplete = False
        self._forgotten: dict[tuple[str, str], int] = {}
        self._queue: deque[Kept] = deque(maxlen=_RING)
        self._due = threading.Event()
        self._armed = False
        self._closed = False
        self._writing = threading.Lock()
        self._file: TextIO | None = None
        self._thread: threading.Thread | None = None

    def put(self, lines: tuple[Line, ...]) -> None:
        """Notes what happened now; never blocks, never fails. Values are what JSON can hold and do not change later."""
        queue = self._queue
        if not self.live and len(queue) == _RING:
            self._forget(queue[0])
        queue.append((self._clock(), self.operation, self.generation, self.names, lines))
        if self.live and not self._armed:
            self._armed = True
            self._due.set()

    def _forget(self, oldest: Kept) -> None:
        """Counts the collective of an entry that is about to fall out, so that the later ones keep their numbers."""
        self._incomplete = True
        event, _, fields = oldest[4][-1]  # a collective is the last line of its entry
        if event == "collective.before":
            key = (fields["group"], oldest[3].get(fields["group"].rpartition(".")[2], ""))
            self._forgotten[key] = self._forgotten.get(key, 0) + 1

    def note(self, event: str, machine: str = "", **fields: Any) -> None:
        """Notes one event."""
        self.put(((event, machine, fields),))

    def begin(self, operation: str) -> None:
        """From here on every event is written, also those that were kept."""
        self.operation = operation
        if not self.live:
            self.live = True
            kept = deque(self._queue)
            if self._incomplete:
                lost = [[group.partition(".")[0], of, number] for (group, of), number in self._forgotten.items()]
                lines = (("dropped", "", {"collectives": lost}), *self.again)
                kept.appendleft((kept[0][0], "", self.generation, {}, lines))
                self._forgotten, self._incomplete = {}, False
            self._queue = kept
            if self._thread is None:
                self._thread = threading.Thread(target=self._write, name=f"recorder {self.engine}", daemon=True)
                self._thread.start()
                atexit.register(self.close)

    def end(self) -> None:
        """Writes all of the operation; from here on events are kept, not written."""
        self.flush()
        self.live = False
        self.operation = ""
        self._queue = deque(self._queue, maxlen=_RING)

    def flush(self) -> None:
        """Writes all that was put before; returns when the operating system has it."""
        try:
            with self._writing:
                lines = self._encode()
                if lines:
                    if self._file is None:
                        self.path.parent.mkdir(parents=True, exist_ok=True)
                        self._file = self.path.open("a", encoding="utf-8")
                    self._file.write("\n".join(lines) + "\n")
                    self._file.flush()
        except Exception as error:  # a full disk is no reason to stop an engine
            self.fault = error

    def close(self) -> None:
        """Writes everything and ends the thread; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._due.set()
        if self._thread is not None:
            self._thread.join(5)
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self) -> None:
        while not self._closed:
            self._due.wait()
            self._due.clear()
            if not self._closed:
                time.sleep(_DELAY)  # a batch a time: the hot path must not pay for encoding
                self._armed = False
                self.flush()

    def _encode(self) -> list[str]:
        lines = []
        queue = self._queue
        while queue:
            t, operation, generation, names, said = queue.popleft()
            head = {"t": t, "wall": (t + self._wall) / 1e9, "engine": self.engine, "instance": self.instance}
            head |= {"operation": operation, "generation": generation}
            for event, machine, fields in said:
                line = {**head, "machine": machine, "event": event, **fields}
                if "group" in fields:
                    line["of"] = names.get(fields["group"].rpartition(".")[2], "")
                lines.append(json.dumps(line, default=str))
        return lines


def process_instance() -> str:
    """A name of this process that another one with the same number does not share."""
    return f"{os.getpid()}-{time.time_ns() // 1_000_000 % 1_000_000_000:x}"
