"""A coordinator in a process of its own, so that it can be killed or stopped while its engines serve on.

`python -m elasticfsm.runtime.faults.host FD POST` answers on a socket, a line of JSON for a line of JSON; engines are
started by the suite's zygote, which it asks for that on the same socket.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from elasticfsm.errors import DeadlineExpired, ElasticError

from ..adopted import Adopted
from ..deployment import Options
from ..gpus import Seats
from ..launch import Launcher
from ..models import PSALTER
from .feeder import Feeder, questions
from .rig import Rigged
from .zygote import Start, Zygote, asked


class Line:
    """JSON over a socket. One thread reads."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._file = end.makefile("rb")
        self._sending = threading.Lock()

    def say(self, what: Mapping[str, Any]) -> None:
        """Send one object."""
        with self._sending, contextlib.suppress(OSError):
            self._end.sendall(msgspec.json.encode(what) + b"\n")

    def __iter__(self) -> Iterator[dict[str, Any]]:
        with contextlib.suppress(OSError):
            for line in self._file:
                yield msgspec.json.decode(line, type=dict[str, Any])

    def close(self) -> None:
        """End the reader, too."""
        with contextlib.suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()


class Host:
    """The suite's side: starts a coordinator process, calls it, and forks the engines that it asks for."""

    def __init__(self, zygote: Zygote, post: Path, command: Mapping[str, Any], within: float = 60.0) -> None:
        mine, theirs = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, "-m", __spec__.name, str(theirs.fileno()), str(post)],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self.pid = self._process.pid
        self._zygote = zygote
        self._line = Line(mine)
        self._answers: list[dict[str, Any]] = []
        self._news = threading.Condition()
        self._over = False
        self._thread = threading.Thread(target=self._listen, name="host", daemon=True)
        self._thread.start()
        self.call(command, within)

    def call(self, command: Mapping[str, Any], within: float = 20.0) -> dict[str, Any]:
        """Ask for something; ElasticError with the host's words, or when it is gone or silent."""
        self._line.say(command)
        with self._news:
            if not self._news.wait_for(lambda: self._answers or self._over, within):
                raise DeadlineExpired(f"the coordinator process did not answer `{command['do']}` within {within:g} s")
            if not self._answers:
                raise ElasticError(f"the coordinator process is gone; it was asked to `{command['do']}`")
            answer = self._answers.pop(0)
        if "error" in answer:
            raise ElasticError(answer["error"])
        return answer

    def gone(self, within: float) -> bool:
        """Whether the process has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(within)
        return self._process.returncode is not None

    def close(self) -> None:
        """End it, whatever it does; engines are the caller's."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(signal.SIGCONT)
            self._line.close()
            if not self.gone(15):
                self._process.kill()
                self._process.wait(10)
        else:
            self._line.close()
        self._thread.join(5)

    def _listen(self) -> None:
        for said in self._line:
            if "start" in said:
                child = self._zygote.start(msgspec.convert(said["start"], Start))
                self._line.say({"do": "started", "pid": child.pid})
                continue
            with self._news:
                self._answers.append(said)
                self._news.notify_all()
        with self._news:
            self._over = True
            self._news.notify_all()


class _Asking(Launcher):
    """A launcher that has its engines forked by the suite."""

    line: Line
    came: threading.Condition
    started: list[int]

    def __init__(self, logs: Path, environment: Mapping[str, str] | None = None, seats: Seats | None = None) -> None:
        super().__init__(logs, environment, seats)

    def _spawn(self, engine: str, command: list[str]) -> None:
        with self.came:
            self.line.say({"start": msgspec.to_builtins(asked(command, str(self.log(engine))))})
            self.came.wait_for(lambda: self.started, 30)
            pid = self.started.pop()
        with self._lock:
            self._processes[engine] = Adopted(pid)


class _Serving:
    """The host's side: one deployment, and the requests sent to it."""

    def __init__(self, line: Line, post: Path) -> None:
        self._line = line
        self._started: list[int] = []
        self._came = threading.Condition()
        launcher = type("Launcher", (_Asking,), {"line": line, "started": self._started, "came": self._came})
        self._kind: type[Rigged] = type("Hosted", (Rigged,), {"post": post, "launchers": launcher})
        self._deployment: Rigged | None = None
        self._feeder: Feeder | None = None

    def run(self) -> None:
        """Answer until the line is closed; then end the deployment."""
        try:
            for asked_ in self._line:
                if asked_["do"] == "started":
                    with self._came:
                        self._started.append(asked_["pid"])
                        self._came.notify_all()
                else:
                    threading.Thread(target=self._answer, args=(asked_,), daemon=True).start()
        finally:
            if self._deployment is not None:
                self._deployment.close()

    def _answer(self, asked_: dict[str, Any]) -> None:
        try:
            found = getattr(self, f"_{asked_.pop('do')}")(**asked_)
        except ElasticError as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        self._line.say(found or {})

    def _open(self, size: int, options: dict[str, Any]) -> None:
        self._deployment = self._kind.start(PSALTER, size, msgspec.convert(options, Options))

    def _resume(self, directory: str) -> None:
        self._deployment = self._kind.resume(directory)

    def _scale(self, size: int, remove: list[str]) -> None:
        self._need().scale(size, remove)

    def _cancel(self) -> None:
        current = self._need().operations.current
        if current is not None:
            current.cancel()

    def _look(self) -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(self._need().status())
        return found

    def _feed(self) -> None:
        self._feeder = Feeder(self._need(), questions())
        self._feeder.start()

    def _collect(self, within: float) -> dict[str, Any]:
        feeder, self._feeder = self._feeder, None
        if feeder is None:
            return {"complaints": [], "streams": []}
        complaints = feeder.stop(within)
        return {
            "complaints": complaints,
            "streams": [[each.prompt, each.tokens, each.outcome, each.reason] for each in feeder.streams],
        }

    def _need(self) -> Rigged:
        if self._deployment is None:
            raise ElasticError("nothing is open")
        return self._deployment


def main(descriptor: int, post: str) -> None:
    """The process."""
    _Serving(Line(socket.socket(fileno=descriptor)), Path(post)).run()
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
