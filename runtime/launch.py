"""Starts engine processes, watches them, and ends them; whatever happens to the parent, none of them stays behind.

Three nets: `close` ends every process by its id; an engine asks the kernel for a signal when its parent dies
(`die_with_parent`); and its control thread compares the parent's id with the one it was given.
"""

from __future__ import annotations

import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, ClassVar, TypeVar

from elasticfsm.errors import DeadlineExpired, EngineDied, RequestRefused

from .adopted import Adopted, adopt

if TYPE_CHECKING:
    from .gpus import Seats

LOG_LINES = 8  # of an engine that died
LATELY = 10.0  # seconds before its end: what it wrote then may say why
T = TypeVar("T")

_PR_SET_PDEATHSIG = 1
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def die_with_parent(parent: int) -> None:
    """Ask for SIGTERM when `parent` dies; raises EngineDied when it is dead already. Linux only."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0) != 0:
        raise EngineDied(f"prctl(PR_SET_PDEATHSIG) failed: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:  # it died before the kernel was asked
        raise EngineDied(f"the process {parent} that started this engine is gone")


def gently(work: Callable[[], T], niceness: int = 5) -> T:
    """Do work in a thread that yields to everybody else (Linux: niceness is a thread's own), and return its result.

    An engine imports torch beside engines that serve on the same cores; the thread that serves later stays as it is.
    """
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            mine = os.getpriority(os.PRIO_PROCESS, 0)
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(mine + niceness, 19))
            found.append(work())
        except BaseException as error:  # handed to the caller, whatever it is
            failed.append(error)

    thread = threading.Thread(target=run, name="gently")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


class Launcher:
    """Engine processes by engine id.

    All are started by one thread that lives until `close`: the kernel's signal comes when the *thread* that started a
    process ends. With `keep`, engines outlive this process by so many seconds, for another coordinator to adopt them.
    """

    keep: float = 0.0
    module: ClassVar[str] = "elasticfsm"  # what `python -m` runs

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None, seats: Seats | None = None) -> None:
        self._logs = logs
        self._seats = seats
        self._environment = {**os.environ, **ONE_THREAD, **(environment or {})}
        self._processes: dict[str, subprocess.Popen[bytes] | Adopted] = {}
        self._ended: dict[str, int] = {}
        self._begun: dict[str, int] = {}  # bytes of the log when the process was started
        self._wanted: queue.SimpleQueue[tuple[str, list[str], queue.SimpleQueue[BaseException | None]] | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="launcher", daemon=True)
        self._thread.start()

    def start(self, engine: str, address: str, operation: str) -> None:
        """Start `elasticfsm engine` in a process group of its own; its output goes to a log file. Does not wait."""
        command = [sys.executable, "-m", self.module, "engine", "--join", address, "--operation", operation]
        command += ["--engine-id", engine, "--parent", str(os.getpid())]
        command += ["--keep", f"{self.keep:g}"] if self.keep else []
        log = self.log(engine)
        self._begun[engine] = log.stat().st_size if log.exists() else 0
        answer: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        self._wanted.put((engine, command, answer))
        error = answer.get(timeout=30)
        if error is not None:
            raise error

    def adopt(self, engine: str, pid: int) -> bool:
        """Take over an engine process that a former coordinator started; False when there is none of that number."""
        found = adopt(pid, engine)
        if found is None:
            return False
        with self._lock:
            self._processes[engine] = found
        return True

    def pids(self) -> dict[str, int]:
        """The process ids of all engines that run here."""
        with self._lock:
            return {engine: process.pid for engine, process in self._processes.items()}

    def pid(self, engine: str) -> int | None:
        """The process id of an engine that was started here and runs."""
        process = self._processes.get(engine)
        return process.pid if process else None

    def obituary(self, engine: str, status: int) -> str:
        """How a process ended, and the end of what it wrote, if that can have to do with it.

        Nothing is quoted of a process that was killed, which had no time to say why, nor what was written long before
        its end, or by a process before it: the log is continued under the same id.
        """
        said = f"its process ended with status {status}"
        if -status in (signal.SIGKILL, signal.SIGTERM):
            return said
        lines: list[str] = []
        with suppress(OSError), self.log(engine).open("rb") as log:
            if time.time() - os.fstat(log.fileno()).st_mtime < LATELY:
                log.seek(self._begun.get(engine, 0))
                lines = log.read().decode(errors="replace").strip().splitlines()
        lines = [line for line in lines if "NIXL INFO" not in line]
        return (
            f"{said}; its last words: {' | '.join(lines[-LOG_LINES:])}" if lines else f"{said}; it said nothing of it"
        )

    def log(self, engine: str) -> Path:
        """Where its output goes."""
        return self._logs / f"{engine}.log"

    def exited(self) -> dict[str, int]:
        """Engines that ended since the last call, with their exit status (negative: a signal)."""
        with self._lock:
            for engine, process in list(self._processes.items()):
                status = process.poll()
                if status is not None:
                    del self._processes[engine]
                    self._free(engine)
                    self._ended[engine] = status
            ended, self._ended = self._ended, {}
        return ended

    def stop(self, engines: Sequence[str], grace: float = 5.0) -> None:
        """End engines: SIGTERM, then SIGKILL after `grace` seconds; blocks until they are gone. Idempotent."""
        with self._lock:
            chosen = {engine: process for engine in engines if (process := self._processes.pop(engine, None))}
        for process in chosen.values():
            process.terminate()
        limit = time.monotonic() + grace
        for engine, process in chosen.items():
            self._reap(process, limit)
            self._free(engine)

    def kill(self, engine: str) -> None:
        """SIGKILL, for an engine that was declared dead; idempotent."""
        with self._lock:
            process = self._processes.get(engine)
        if process is not None:
            process.kill()

    def close(self, grace: float = 5.0) -> None:
        """End every engine that is left, and the thread; idempotent."""
        self.stop(list(self._processes), grace)
        self._wanted.put(None)
        if self._thread is not threading.current_thread():
            self._thread.join(5)

    @staticmethod
    def _reap(process: subprocess.Popen[bytes] | Adopted, limit: float) -> None:
        try:
            process.wait(max(0.0, limit - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired as error:
                raise DeadlineExpired(f"process {process.pid} did not end within 10 s of SIGKILL") from error

    def _run(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            engine, command, answer = wanted
            try:
                self._spawn(engine, command)
            except (OSError, RequestRefused) as error:
                answer.put(error)
            else:
                answer.put(None)

    def _spawn(self, engine: str, command: list[str]) -> None:
        if engine in self._processes:
            raise RequestRefused(f"engine {engine} runs already as process {self._processes[engine].pid}")
        seat = self._seats.take(engine) if self._seats is not None else {}
        with self._open_log(engine) as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**self._environment, **seat},
                start_new_session=True,
            )
        with self._lock:
            self._processes[engine] = process

    def _free(self, engine: str) -> None:
        if self._seats is not None:
            self._seats.leave(engine)

    def _open_log(self, engine: str) -> IO[bytes]:
        return self.log(engine).open("ab")
