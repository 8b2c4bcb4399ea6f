"""Adapters that do what a step means and nothing else: engines as threads of one process, without torch or sockets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import NamedTuple

from elasticfsm.board import Board
from elasticfsm.errors import DeadlineExpired, GroupCut, GroupError
from elasticfsm.monitor import Monitor
from elasticfsm.protocol import Step
from elasticfsm.seat import Cancel
from elasticfsm.steps import vocabulary
from elasticfsm.testing.ground import Ground, Meeting

Choose = Callable[[str, list[str]], str]


class Agreed(NamedTuple):
    """What a step agreed on."""

    votes: frozenset[str]
    answer: str


def first(step: str, answers: list[str]) -> str:
    """The default choice of an answer: plans are worth while, and layers end."""
    return "last" if step == "experts.settle" else answers[0]


class Hands:
    """The hands of one engine on a ground that engines share. Waits look at their cancellation; `within` seconds each.

    `lock` is shared by all hands of a ground. `faults` maps a step (`groups.create`) to the error that it raises.
    """

    def __init__(
        self,
        engine: str,
        ground: Ground,
        lock: threading.Condition,
        board: Board | None = None,
        monitor: Monitor | None = None,
        has_work: Callable[[], bool] = lambda: False,
        choose: Choose = first,
        within: float = 20.0,
    ) -> None:
        self.engine = engine
        self.faults: Mapping[str, BaseException] = {}
        self.performed: list[str] = []
        self._ground = ground
        self._lock = lock
        self._board = board or Board()
        self._monitor = monitor
        self._has_work = has_work
        self._choose = choose
        self._within = within
        self._posted: dict[str, Meeting] = {}

    def perform(self, step: Step, cancel: Cancel | None) -> object:
        """Does one step."""
        if step.name in self.faults:
            raise self.faults[step.name]
        ground, means = self._ground, step.meaning.means
        with self._lock:
            ground.demand(self.engine, step)
            if means != "await":
                ground.end(self.engine, step)
        value: object = None
        if means in ("rendezvous", "agree", "post"):
            value = self._collective(step, cancel)
        elif means == "wait":
            self._until(self._posted[step.argument], cancel)
        elif means == "await":
            self._wait(lambda: not ground.missing(self.engine, step, "awaits"), str(step), cancel)
        else:
            value = self._local(step)
        with self._lock:
            if means == "await":  # what it takes away, others may still need while it waits
                ground.end(self.engine, step)
            ground.provide(self.engine, step)
            self.performed.append(str(step))
            self._lock.notify_all()
        return value

    def _local(self, step: Step) -> object:
        with self._lock:
            if step.meaning.means == "rename":
                self._ground.rename(self.engine)
            if step.name == "groups.destroy":
                self._ground.close(self.engine, step.argument)
            self._lock.notify_all()
        return self._choose(step.name, step.meaning.answers) if step.meaning.answers else None

    def _collective(self, step: Step, cancel: Cancel | None) -> object:
        self._tell("before", step)
        with self._lock:
            meeting = self._ground.enter(self.engine, step, self._contribution(step))
            if meeting.released and step.meaning.answers:
                meeting.answer = meeting.answer or self._choose(step.name, step.meaning.answers)
            self._posted[step.argument] = meeting
            self._lock.notify_all()
        if step.meaning.means != "post":
            self._until(meeting, cancel)
        self._tell("after", step)
        return self._result(step, meeting)

    def _contribution(self, step: Step) -> object:
        if step.meaning.means == "agree":
            return (self._board.votes, self._board.wanted or self._has_work())
        return self._ground.holds(self.engine, step.meaning.asks) if step.meaning.asks else None

    def _result(self, step: Step, meeting: Meeting) -> object:
        values: list[object] = list(meeting.entered.values())
        if step.meaning.means == "agree":
            cast = [value[0] for value in values if isinstance(value, tuple)]
            work = any(value[1] for value in values if isinstance(value, tuple))
            return Agreed(frozenset.intersection(*cast), "work" if work else "empty")
        if step.meaning.asks:
            return "all" if all(values) else "not_all"
        return meeting.answer or None

    def _tell(self, when: str, step: Step) -> None:
        for op in step.meaning.issues if self._monitor is not None else ():
            getattr(self._monitor, when)(f"{step.meaning.kind}.{step.argument}", op)

    def _until(self, meeting: Meeting, cancel: Cancel | None) -> None:
        def over() -> bool:
            if self._ground.broken(meeting):
                raise GroupError(f"a member closed its side of {meeting}")
            return meeting.released

        try:
            self._wait(over, str(meeting), cancel)
        except GroupError:
            with self._lock:
                name = next((n for n, i in self._ground.names[self.engine].items() if meeting.group.endswith(i)), "")
                self._ground.close(self.engine, name)
                self._lock.notify_all()
            raise

    def _wait(self, over: Callable[[], bool], what: str, cancel: Cancel | None) -> None:
        end = time.monotonic() + self._within
        with self._lock:
            while not over():
                if cancel is not None and cancel.is_set():
                    raise GroupCut(f"withdrawn while waiting for {what}")
                if time.monotonic() > end:
                    raise DeadlineExpired(f"waited {self._within:g} s for {what}")
                self._lock.wait(0.02)


def hands(performer: Hands) -> dict[str, object]:
    """The adapters of one engine: every step of the vocabulary is a method that `performer` performs."""
    adapters: dict[str, SimpleNamespace] = {}
    for name in vocabulary().steps:
        adapter, _, verb = name.partition(".")
        setattr(adapters.setdefault(adapter, SimpleNamespace()), verb, _method(performer, name))
    return dict(adapters)


def _method(performer: Hands, name: str) -> Callable[..., object]:
    def method(argument: str = "", cancelled: Cancel | None = None) -> object:
        return performer.perform(Step(name, argument), cancelled)

    return method
