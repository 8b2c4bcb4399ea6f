"""Engines that start in a fraction of a second: forked from a process that has imported everything they need.

`python -m elasticfsm.runtime.faults.zygote FD` answers on a socket: a line of JSON starts an engine, a line comes back
with its process id, and one more when it has ended. Everything behind the fork is what `elasticfsm engine` does.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from elasticfsm.errors import EngineDied

from ..gpus import Seats
from ..launch import ONE_THREAD, Launcher, die_with_parent
from ..weights.bindings import FLAVOURS

LOOK = 0.02  # seconds between two looks at ended children


class Start(msgspec.Struct):
    """Start an engine; its output is appended to a file. With `keep` it outlives its `parent` by so many seconds."""

    address: str
    operation: str
    engine: str
    log: str
    parent: int = 0
    keep: float = 0.0


class Said(msgspec.Struct):
    """What the zygote says: a process was started (status None), or has ended."""

    engine: str
    pid: int
    status: int | None = None
    address: str = ""


class Child:
    """One engine process, with the methods of subprocess.Popen that the launcher uses."""

    def __init__(self, pid: int, address: str) -> None:
        self.pid = pid
        self.address = address  # of the coordinator that it joined
        self.returncode: int | None = None
        self.over = threading.Event()

    def poll(self) -> int | None:
        """Its status, None while it runs."""
        return self.returncode

    def wait(self, timeout: float) -> int | None:
        """Wait for its end; subprocess.TimeoutExpired if that takes longer."""
        if not self.over.wait(timeout):
            raise subprocess.TimeoutExpired(f"engine process {self.pid}", timeout)
        return self.returncode

    def terminate(self) -> None:
        """SIGTERM."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Zygote:
    """The process to fork from; `children` are all engines that were started, by process id."""

    def __init__(self) -> None:
        mine, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env={**os.environ, **ONE_THREAD},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the suite, which then closes the socket
        )
        theirs.close()
        self.pid = self._process.pid
        self.children: dict[int, Child] = {}
        self._socket = mine
        self._file: IO[bytes] = mine.makefile("rb")
        self._started: dict[str, Child] = {}
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._listen, name="zygote", daemon=True)
        self._thread.start()

    def start(self, start: Start) -> Child:
        """Fork an engine; returns when it runs."""
        with self._news:
            self._socket.sendall(msgspec.json.encode(start) + b"\n")
            if not self._news.wait_for(lambda: start.engine + start.operation in self._started, 60):
                raise EngineDied(f"the process that engines are forked from did not start {start.engine}")
            return self._started.pop(start.engine + start.operation)

    def living(self, address: str = "") -> set[int]:
        """Processes that were started and have not ended; with an address, those that joined there."""
        with self._news:
            alive = [child for child in self.children.values() if child.returncode is None]
            return {child.pid for child in alive if address in ("", child.address)}

    def close(self) -> None:
        """End it, and with it every engine that is left."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._process.wait(30)
        self._thread.join(5)
        self._file.close()
        self._socket.close()

    def _listen(self) -> None:
        with suppress(OSError):
            for line in self._file:
                self._heard(msgspec.json.decode(line, type=Said))

    def _heard(self, said: Said) -> None:
        with self._news:
            if said.status is None:
                child = self.children[said.pid] = Child(said.pid, said.address)
                self._started[said.engine] = child
            else:
                child = self.children[said.pid]
                child.returncode = said.status
                child.over.set()
            self._news.notify_all()


class ForkingLauncher(Launcher):
    """A launcher whose engines come from the zygote; set `zygote` before."""

    zygote: Zygote

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None, seats: Seats | None = None) -> None:
        super().__init__(logs, environment, seats)

    def _spawn(self, engine: str, command: list[str]) -> None:
        child = self.zygote.start(asked(command, str(self.log(engine))))
        with self._lock:
            self._processes[engine] = child  # type: ignore[assignment]


def asked(command: list[str], log: str) -> Start:
    """What a launcher's command line asks for."""
    given = dict(zip(command[4::2], command[5::2], strict=True))
    keep = float(given.get("--keep", 0.0))
    parent = int(given["--parent"]) if keep else 0
    return Start(given["--join"], given["--operation"], given["--engine-id"], log, parent, keep)


def main(descriptor: int) -> None:
    """The zygote's own loop: it ends with the suite, and its engines with it."""
    process = importlib.import_module("elasticfsm.runtime.engine.process")
    for flavour in FLAVOURS:
        with suppress(ImportError):
            importlib.import_module(f"{flavour}._api")
            break
    gc.collect()
    gc.freeze()
    line = socket.socket(fileno=descriptor)
    file = line.makefile("rb")
    children: dict[int, str] = {}
    while True:
        ready, _, _ = select.select([line], [], [], LOOK)
        if ready:
            text = file.readline()
            if not text:
                break
            start = msgspec.json.decode(text, type=Start)
            pid = _fork(process, start, line)
            children[pid] = start.engine
            line.sendall(msgspec.json.encode(Said(start.engine + start.operation, pid, None, start.address)) + b"\n")
        _reap(children, line)
    _end(children)


def _fork(process: object, start: Start, line: socket.socket) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        line.close()
        os.setsid()
        log = os.open(start.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        _rename(f"elasticfsm\0engine\0--engine-id\0{start.engine}\0")
        if not start.keep:
            die_with_parent(parent)
        joining = process.Joining(  # type: ignore[attr-defined]
            start.address, start.operation, start.engine, start.parent or parent, start.keep
        )
        code = process.run_engine(joining)  # type: ignore[attr-defined]
    except BaseException:  # the only place where it can be said: a forked process must not run its parent's exits
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _rename(words: str) -> None:
    """Show other words as this process's command line, where who adopts an engine looks for its id. Linux only."""
    fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    begin, end = int(fields[45]), int(fields[46])  # arg_start and arg_end of proc(5)
    ctypes.memmove(begin, words.encode()[: end - begin].ljust(end - begin, b"\0"), end - begin)


def _reap(children: dict[int, str], line: socket.socket) -> None:
    for pid in list(children):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            said = Said(children.pop(pid), pid, os.waitstatus_to_exitcode(status))
            with suppress(OSError):
                line.sendall(msgspec.json.encode(said) + b"\n")


def _end(children: dict[int, str]) -> None:
    for pid in children:
        os.kill(pid, signal.SIGTERM)
    limit = time.monotonic() + 5
    while children and time.monotonic() < limit:
        for pid in list(children):
            if os.waitpid(pid, os.WNOHANG)[0]:
                del children[pid]
        time.sleep(LOOK)
    for pid in children:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
