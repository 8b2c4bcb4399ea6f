"""Processes that somebody else started: watched and ended through a pidfd, so that a number used again is never hit."""

from __future__ import annotations

import itertools
import os
import select
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

UNKNOWN = 255  # the status of a process that is no child of ours cannot be read


class Watched:
    """Whether a process still runs. Linux only."""

    def __init__(self, pid: int) -> None:
        """Begin to watch; ProcessLookupError when it is gone already."""
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self._poll = select.poll()
        self._poll.register(self._descriptor, select.POLLIN)

    def gone(self, within: float = 0.0) -> bool:
        """Whether it has ended, or ends within so many seconds."""
        return bool(self._poll.poll(1000 * within))

    def send(self, number: signal.Signals) -> None:
        """Send a signal; nothing when it is gone."""
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._descriptor, number)

    def close(self) -> None:
        """Watch no more; idempotent."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Adopted:
    """An engine process of a former coordinator, with the methods of subprocess.Popen that the launcher uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._process = Watched(pid)

    def poll(self) -> int | None:
        """None while it runs."""
        return self._look(0.0)

    def wait(self, timeout: float) -> int:
        """Wait for its end; subprocess.TimeoutExpired if that takes longer."""
        status = self._look(timeout)
        if status is None:
            raise subprocess.TimeoutExpired(f"engine process {self.pid}", timeout)
        return status

    def terminate(self) -> None:
        """SIGTERM."""
        if self.returncode is None:
            self._process.send(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        if self.returncode is None:
            self._process.send(signal.SIGKILL)

    def close(self) -> None:
        """Watch it no more; idempotent."""
        self._process.close()

    def _look(self, within: float) -> int | None:
        if self.returncode is None and self._process.gone(within):
            self.returncode = UNKNOWN
            self._process.close()
        return self.returncode


def adopt(pid: int, engine: str) -> Adopted | None:
    """The process of that number if it is, also after it was opened, the engine of that id; else None."""
    try:
        found = Adopted(pid)
    except OSError:
        return None
    if engine in _named(pid) and found.poll() is None:
        return found
    found.close()
    return None


def _named(pid: int) -> set[str]:
    """The engine ids on the command line of a process."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return set()
    named = {word for flag, word in itertools.pairwise(words) if flag == "--engine-id"}
    return named | {word.removeprefix("--engine-id=") for word in words if word.startswith("--engine-id=")}
