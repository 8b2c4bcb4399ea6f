"""`elasticfsm serve`: engines, coordinator and HTTP routes in the foreground, until a signal or a failure ends them."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Literal

import msgspec
from rich.console import Console
from rich.text import Text

from ..demo.live import View
from ..deployment import Deployment, Options
from . import finding, logs
from .app import make
from .metrics import Metrics, Names
from .server import Server

LOOK = 0.2  # seconds

log = logging.getLogger(__name__)


class Serving(msgspec.Struct, kw_only=True, frozen=True):
    """What to serve and how to say so; `grace` seconds are left to an operation and to requests when all shall end."""

    model: Path
    size: int
    options: Options
    resume: bool = False
    http: str = "127.0.0.1:0"
    logs: Literal["text", "json"] = "text"
    names: Names = "elasticfsm"
    grace: float = 30.0


class Foreground:
    """One run. SIGTERM and SIGINT end it: the first one in order, the second one at once."""

    def __init__(self, serving: Serving, console: Console) -> None:
        self.serving = serving
        self.deployment: Deployment | None = None
        self._console = console
        self._signals: list[int] = []
        self._news = threading.Event()

    def run(self) -> int:
        """Serve until the end; returns the exit code: 0 as asked, 1 when the deployment failed, 128 + n when forced."""
        directory = finding.private(Path(self.serving.options.directory))
        with ExitStack() as stack:
            stack.callback(self._restore_signals())
            above = logs.Above(self._console) if self._live else None  # of the view, which would be torn by others
            handler = logs.to(above, self.serving.logs == "json")
            stack.callback(logs.remove, handler)
            server = Server(self.serving.http)  # a port that cannot be had is refused before anything starts
            closing = stack.enter_context(ExitStack())
            closing.callback(server.close)
            deployment = self.deployment = stack.enter_context(self._start(directory))
            stack.push(closing.pop_all())  # its routes end before what they show does
            server.start(make(deployment, Metrics(deployment, self.serving.names)))
            finding.announce(directory, finding.Service(server.url, os.getpid(), deployment.instance))
            stack.callback(finding.withdraw, directory)
            self._say(f"{server.url} serves {deployment.model.name}; directory {directory}; Ctrl-C ends it")
            log.info("serving", extra={"instance": deployment.instance, "engine": ",".join(deployment.members)})
            if self._live:
                stack.callback(View(deployment, self._console, True, self.headline).close)
            self._attend(deployment)
            return self._end(deployment)

    def headline(self) -> str:
        """One line: who serves, and what is under way."""
        deployment = self.deployment
        if deployment is None:
            return "starting"
        running = deployment.operations.running
        text = f"{len(deployment.members)} engines serve, generation {deployment.generation}"
        if running is None:
            return text
        record = running.record
        return f"{text}; {record.operation_id} to {record.requested_size}: {record.phase} ({record.detail})"

    @property
    def _live(self) -> bool:
        return self.serving.logs == "text" and self._console.is_terminal

    def _start(self, directory: Path) -> Deployment:
        serving = self.serving
        if serving.resume:
            return Deployment.resume(directory, lambda: self._say(f"taking over the engines of {directory} ..."))
        options = msgspec.structs.replace(serving.options, directory=str(directory))
        return Deployment.start(serving.model, serving.size, options, lambda: self._starting(directory))

    def _starting(self, directory: Path) -> None:
        """Said when nothing is left that could be refused."""
        serving = self.serving
        self._say(f"starting {serving.size} engines with {serving.model} ...")
        if not serving.options.launch:
            self._say(f"waiting for engines that somebody else starts: {self._command(directory)}")

    def _command(self, directory: Path) -> str:
        options = self.serving.options
        address = options.address or f"ipc://{directory}/hub.sock"
        return f"elasticfsm engine --join {address} --operation {options.boot_operation} --engine-id ID"

    def _attend(self, deployment: Deployment) -> None:
        while not self._signals and not deployment.failed:
            self._news.wait(LOOK)

    def _end(self, deployment: Deployment) -> int:
        if deployment.failed:
            log.error("failed", extra={"error": deployment.failed})
            self._await(lambda: deployment.operations.running is None, LOOK * 10)
            return 1
        self._say("ending: new requests are refused; the next signal ends it at once")
        deployment.router.shut("the coordinator was told to end")
        limit = time.monotonic() + self.serving.grace
        running = deployment.operations.running
        if running is not None:
            running.cancel()
            self._await(lambda: running.ended, self.serving.grace)
            record = running.status()
            self._say(f"operation {record.operation_id}: {record.phase} ({record.detail}) {record.error}".rstrip())
        self._await(lambda: not deployment.router.load(), limit - time.monotonic())
        left = sum(deployment.router.load().values())
        if left:
            self._say(f"{left} requests had not ended and fail")
        deployment.router.close("the coordinator was told to end")  # streams of clients end by it, not by a cut line
        if running is not None and not running.ended:
            log.error("ended in the middle", extra={"operation": running.id, "state": running.record.detail})
        return 128 + self._signals[-1] if len(self._signals) > 1 else 0

    def _await(self, reached: Callable[[], bool], within: float) -> None:
        limit = time.monotonic() + within
        while not reached() and time.monotonic() < limit and len(self._signals) < 2:
            self._news.clear()
            self._news.wait(LOOK)

    def _restore_signals(self) -> Callable[[], None]:
        """Take the signals over; returns what gives them back."""
        ours = {signal.SIGTERM, signal.SIGINT}
        before = {each: signal.signal(each, self._signalled) for each in ours}
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, ours)  # whoever started this may have blocked them

        def restore() -> None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            for each, handler in before.items():
                signal.signal(each, handler)

        return restore

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self._signals.append(number)
        self._news.set()
        if self.deployment is None:  # it is starting: unwind, so that all that was started is ended
            raise SystemExit(128 + number)

    def _say(self, text: str) -> None:
        if self.serving.logs == "json":
            log.info("%s", text)
        else:
            self._console.print(Text(text), soft_wrap=True)
