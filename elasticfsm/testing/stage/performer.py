"""The hands of one actor: adapters that stand at a gate before they do what a step means, and inside a collective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace

from elasticfsm.board import Board
from elasticfsm.errors import GroupError
from elasticfsm.language import StepMeaning
from elasticfsm.monitor import Monitor
from elasticfsm.protocol import Step
from elasticfsm.seat import Cancel
from elasticfsm.testing.ground import Meeting
from elasticfsm.testing.hands import Agreed
from elasticfsm.testing.stage.gates import Gates
from elasticfsm.testing.stage.laws import Laws

FAIL, CLOSING = "fail", "fail closing"  # orders; any other one is the answer that a step gives


class Progress:
    """How far a list of steps has come: how many steps have ended, and the last answer."""

    def __init__(self) -> None:
        self.step = 0
        self.answer = ""


class Performer:
    """Does the steps of one actor on the laws that all share."""

    def __init__(self, who: str, laws: Laws, gates: Gates, board: Board, monitor: Monitor | None = None) -> None:
        self.who = who
        self.progress: dict[Cancel, Progress] = {}
        self.inside: dict[Cancel, Meeting] = {}
        self.posted: dict[str, Meeting] = {}
        self.failed_at: dict[str, int] = {}  # machine -> how many steps of its list had ended when one failed
        self.owner: Callable[[Cancel], str] = lambda cancel: ""
        self.requests = 0
        self._laws = laws
        self._gates = gates
        self._board = board
        self._monitor = monitor
        self.busy: Callable[[Cancel], bool] = lambda cancel: False
        self.launch: Callable[[str], None] = lambda role: None

    def adapters(self, steps: Mapping[str, StepMeaning], vocabulary: Mapping[str, str]) -> dict[str, object]:
        """Every step as a method of an adapter; `vocabulary` says where the meaning of a step is written."""
        found: dict[str, SimpleNamespace] = {}
        for name in steps:
            adapter, _, verb = name.partition(".")
            setattr(found.setdefault(adapter, SimpleNamespace()), verb, self._method(name, vocabulary.get(name, "")))
        return dict(found)

    def _method(self, name: str, vocabulary: str) -> Callable[..., object]:
        def method(argument: str = "", cancel: Cancel | None = None) -> object:
            return self.perform(Step(name, argument, vocabulary), cancel or Cancel())

        return method

    def perform(self, step: Step, cancel: Cancel) -> object:
        """Stands at the gate, then does the step; raises GroupError when told to fail or when its list is withdrawn."""
        mine = self.progress.setdefault(cancel, Progress())
        try:
            order = self._gates.pass_(cancel, step, False)
            if order in (FAIL, CLOSING):
                self._laws.outsider(self.who, step)
                raise self._failure(step, order)
            value = self._do(step, cancel, order)
        except Exception:
            self.failed_at[self.owner(cancel)] = mine.step
            raise
        mine.step += 1
        mine.answer = value if isinstance(value, str) else getattr(value, "answer", mine.answer)
        return value

    def _do(self, step: Step, cancel: Cancel, order: str) -> object:
        laws, means = self._laws, step.meaning.means
        laws.require(self.who, step)
        value: object = None
        if means in ("rendezvous", "agree", "post"):
            value = self._collective(step, cancel, order)
        elif means == "rename":
            laws.switch(self.who, self.busy(cancel))
        elif means == "launch":
            self.launch(step.argument)
        elif any(fact.endswith(" *") for fact in step.facts("ends")):
            laws.destroy(self.who, step.argument)
        laws.end(self.who, step)
        laws.provide(self.who, step)
        return value if means in ("rendezvous", "agree") else order or next(iter(step.meaning.answers), None)

    def _collective(self, step: Step, cancel: Cancel, order: str) -> object:
        self._tell("before", step)
        identity = self._laws.identity(self.who, step.argument)
        meeting = self._laws.meet(self.who, step, self._contribution(step), step.meaning.means == "post")
        if self._laws.released(meeting):
            meeting.answer = _answer(step, meeting, order)
        if step.meaning.means == "post":
            self.posted[step.argument] = meeting
        else:
            try:
                self._stay(step, cancel, meeting)
            finally:
                self._laws.left(self.who, step, identity)
        self._tell("after", step)
        return self._result(step, meeting)

    def _stay(self, step: Step, cancel: Cancel, meeting: Meeting) -> None:
        self.inside[cancel] = meeting
        try:
            order = self._gates.pass_(cancel, step, True)
            if order in (FAIL, CLOSING):
                raise self._failure(step, order)
        except GroupError as error:
            if cancel.is_set() and not self._laws.released(meeting):
                self._laws.close(self.who, step.argument)
            self._tell("after", step, error)
            raise
        finally:
            del self.inside[cancel]

    def _failure(self, step: Step, order: str) -> GroupError:
        if order != CLOSING:
            return GroupError("it was told to")
        self._laws.close(self.who, step.argument)
        return GroupError("a member has closed its side of the group")

    def _contribution(self, step: Step) -> object:
        if step.meaning.means == "agree":
            served = self.requests > 0
            return (self._board.votes, self._board.wanted, served)
        return self._laws.holds(self.who, step.meaning.asks) if step.meaning.asks else None

    def _result(self, step: Step, meeting: Meeting) -> object:
        if step.meaning.means != "agree":
            return meeting.answer or None
        cast = [value[0] for value in meeting.entered.values() if isinstance(value, tuple)]
        mine = meeting.entered[self.who]
        self.requests -= int(isinstance(mine, tuple) and mine[2])
        return Agreed(frozenset.intersection(*cast), meeting.answer)

    def _tell(self, when: str, step: Step, *error: BaseException) -> None:
        for op in step.meaning.issues if self._monitor is not None else ():
            getattr(self._monitor, when)(f"{step.meaning.kind}.{step.argument}", op, *error)


def _answer(step: Step, meeting: Meeting, order: str) -> str:
    """What a collective says to all of its members, when the last one has entered."""
    values = list(meeting.entered.values())
    if step.meaning.asks:
        return step.meaning.answers[0 if all(values) else 1]
    if step.meaning.means == "agree":
        work, empty = step.meaning.answers
        pressing = any(isinstance(value, tuple) and (value[1] or value[2]) for value in values)
        return work if pressing else order or empty
    return order or (step.meaning.answers or [""])[0]
