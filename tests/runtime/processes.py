"""Real processes for tests: started by fork from a server that has torch loaded, gone when the test is over.

A test names a function of its own file; it runs in the child as `function(link, **arguments)` and talks to the test
through `link.say(value)` and `link.hear()` (JSON values). What it returns or raises is the child's result.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["torch", "torch.distributed", "elasticfsm.errors", "processes"])
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG


class ChildFailedError(AssertionError):
    """A child raised, ended without a result, or said nothing in time; the text holds its traceback."""


class Link:
    """One end of the pipe between test and child."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def say(self, value: Any) -> None:
        """Send a JSON value to the other end."""
        self._pipe.send_bytes(json.dumps(value).encode())

    def hear(self, within: float = 30.0) -> Any:
        """The next value from the other end."""
        if not self._pipe.poll(within):
            raise ChildFailedError(f"nothing heard within {within:g} s")
        return json.loads(self._pipe.recv_bytes())


class Child:
    """A running child as the test sees it."""

    def __init__(self, process: Any, link: Link, name: str) -> None:
        self.name = name
        self.process = process
        self._link = link

    def say(self, value: Any) -> None:
        """Send a JSON value to the child."""
        self._link.say(["said", value])

    def hear(self, within: float = 30.0) -> Any:
        """What the child says next; ChildFailedError if it failed instead."""
        return self._next("said", within)

    def result(self, within: float = 30.0) -> Any:
        """What the child's function returned; ChildFailedError if it raised."""
        return self._next("returned", within)

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self.process.kill()
        self.process.join(10)

    def stop(self) -> None:
        """SIGSTOP, and wait until every thread stands still (the signal takes its time)."""
        os.kill(self.process.pid, signal.SIGSTOP)
        deadline = time.monotonic() + 10
        while any(state != "T" for state in self._thread_states()):
            if time.monotonic() > deadline:
                raise ChildFailedError(f"{self.name} did not stop")
            time.sleep(0.001)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.process.pid, signal.SIGCONT)

    def _thread_states(self) -> list[str]:
        stats = Path(f"/proc/{self.process.pid}/task").glob("*/stat")
        return [stat.read_text().rpartition(")")[2].split()[0] for stat in stats]

    def _next(self, wanted: str, within: float) -> Any:
        try:
            kind, value = self._link.hear(within)
        except (EOFError, OSError, ChildFailedError) as error:
            raise ChildFailedError(f"{self.name}: {type(error).__name__} {error}") from None
        if kind != wanted:
            raise ChildFailedError(f"{self.name}: expected it to have {wanted} something, but it {kind}:\n{value}")
        return value


class Processes:
    """All children of one test."""

    def __init__(self) -> None:
        self._children: list[Child] = []

    def start(self, function: Callable[..., Any], **arguments: Any) -> Child:
        """Run a top-level function of the test's file in a process of its own; arguments must be JSON values."""
        here, there = _CONTEXT.Pipe()
        path = sys.modules[function.__module__].__file__
        text = json.dumps(arguments)
        process = _CONTEXT.Process(target=_run, args=(there, path, function.__name__, text), daemon=True)
        process.start()
        there.close()
        child = Child(process, Link(here), f"{function.__name__}({text})")
        self._children.append(child)
        return child

    def end(self) -> None:
        """Kill what still runs, and make sure that it is gone."""
        for child in self._children:
            child.process.kill()
        for child in self._children:
            child.process.join(10)
        alive = [child.name for child in self._children if child.process.is_alive()]
        if alive:
            raise AssertionError(f"still running after SIGKILL: {', '.join(alive)}")


class _ChildLink(Link):
    def say(self, value: Any) -> None:
        super().say(["said", value])

    def hear(self, within: float = 30.0) -> Any:
        return super().hear(within)[1]


def _run(pipe: Connection, path: str, function: str, arguments: str) -> None:
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    _one_thread_of_torch()
    link = Link(pipe)
    try:
        value = getattr(_load(path), function)(_ChildLink(pipe), **json.loads(arguments))
        link.say(["returned", value])
    except BaseException:
        link.say(["raised", traceback.format_exc()])
        raise SystemExit(1) from None


def _one_thread_of_torch() -> None:
    import torch

    torch.set_num_threads(1)


def _load(path: str) -> Any:
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
