"""A machine of the spec as it runs: a flat `transitions` machine whose triggers are guards, and which guard to take.

Pure: what came in by mail, how a list of steps ended, what was agreed and whether a deadline passed is told from
outside, so that the same object runs in an engine, in the coordinator, in the world of the tests and behind the trace.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Protocol

import msgspec
import transitions

from elasticfsm.compile import Program
from elasticfsm.errors import ElasticError
from elasticfsm.protocol import Guard, Leave, Machine, State

ABSENT = "absent"  # not started yet, or ended and forgotten
FORGET = "forget"  # the trigger that leads from an end back to `absent`

logging.getLogger("transitions").setLevel(logging.ERROR)  # a refused trigger is our error, said once


class Undeclared(ElasticError):
    """A machine was given a trigger that the spec does not declare in its state; the state was not changed."""


class Mail(Protocol):
    """What a machine may ask about its mail."""

    def oldest(self, messages: Collection[str]) -> str:
        """The one of `messages` that arrived first, or an empty string."""

    def any(self, message: str) -> bool:
        """Whether at least one engine has sent it."""

    def every(self, message: str, alive: bool) -> bool:
        """Whether every engine of every sending role has sent it; `alive`: every one that was started and lives."""


class Sight(msgspec.Struct):
    """All that guards depend on. `outcome` is how the list of the state ended, empty while it runs or waits."""

    mail: Mail
    outcome: str = ""
    answer: str = ""
    agreed: frozenset[str] = frozenset()
    expired: bool = False
    wanted: bool = False


class EngineMachine:
    """One machine of one engine (or of the coordinator). Its state changes only in `fire`; no thread of its own."""

    def __init__(self, name: str, spec: Machine) -> None:
        self.name = name
        self.spec = spec
        self._model = _Model()
        self._machine = transitions.Machine(
            model=self._model,
            states=[ABSENT, *spec.states],
            transitions=[list(edge) for edge in edges(spec)],
            initial=ABSENT,
            queued=True,
            auto_transitions=False,
            send_event=False,
        )

    @property
    def state(self) -> str:
        """The state in which it stands, or `absent`."""
        return self._model.state

    @property
    def at(self) -> State | None:
        """The spec of that state; None while absent."""
        return self.spec.states.get(self._model.state)

    @property
    def ended(self) -> bool:
        """Whether it stands in an end."""
        at = self.at
        return at is not None and at.end

    def fire(self, trigger: str) -> str:
        """Takes the edge of this trigger and returns the new state; raises `Undeclared` when there is none here."""
        event = self._machine.events.get(trigger)
        if event is None or self.state not in event.transitions:
            raise Undeclared(
                f"{self.name} stands in `{self.state}` and was given `{trigger}`; "
                f"the spec declares here {', '.join(self.triggers()) or 'nothing'}; the state was not changed"
            )
        event.trigger(self._model)
        return self.state

    def triggers(self) -> list[str]:
        """The triggers that the spec declares in the present state."""
        return [trigger for trigger, source, _ in edges(self.spec) if source == self.state]

    def stand(self, state: str = "") -> str:
        """Puts a machine that has not started into a state, by default the one of engines that serve already."""
        state = state or self.spec.first
        if self.state != ABSENT or state not in self.spec.states:
            raise Undeclared(
                f"{self.name} stands in `{self.state}` and cannot be put into `{state}`; only from {ABSENT}"
            )
        self._machine.set_state(state, self._model)
        return state


class _Model:
    state: str = ABSENT


def build(program: Program, name: str) -> EngineMachine:
    """The machine of that qualified name (`scale_up.existing`), absent; raises `Undeclared` for an unknown name."""
    if name not in program.machines:
        raise Undeclared(f"{program.name} has no machine `{name}`; there are {', '.join(program.machines)}")
    return EngineMachine(name, program.machines[name])


def edges(spec: Machine) -> Iterable[tuple[str, str, str]]:
    """Every (trigger, source, target) of a machine: starts, guards, and the way from an end back to `absent`."""
    for message, target in spec.starts.items():
        yield Guard("received", message).trigger, ABSENT, target
    for state in spec.states.values():
        if state.end:
            yield FORGET, state.name, ABSENT
        for way in state.leave:
            yield way.guard.trigger, state.name, way.target


def select(state: State, sight: Sight) -> Leave | None:
    """The way out that is taken now: the first enabled one as listed; None when the state goes on.

    An answer wins over `done`. Between several messages the oldest is taken, so that a link stays first in, first out.
    """
    for way in state.leave:
        if _enabled(state, way.guard, sight):
            return _oldest(state, sight) if way.guard.kind == "received" else way
    return None


def start(spec: Machine, mail: Mail) -> str:
    """The message that starts an absent machine now, or an empty string."""
    return mail.oldest(spec.starts)


def agreeing(state: State, full: Collection[str]) -> Leave | None:
    """The way out that a full vote opens; it is taken together with the end of the step that agreed on it."""
    for way in state.leave:
        if way.guard.kind == "agreed" and way.guard.name in full:
            return way
    return None


def own_thread(spec: Machine) -> bool:
    """Whether the machine moves in a thread of its own: it lives inside an engine and never needs the main loop."""
    return bool(spec.inside) and all(state.thread != "foreground" for state in spec.states.values())


def _enabled(state: State, guard: Guard, sight: Sight) -> bool:  # noqa: PLR0911 - one line a guard
    match guard.kind:
        case "done":
            answered = any(way.guard == Guard("answer", sight.answer) for way in state.leave)
            return not answered and (sight.outcome == "done" or not state.steps)
        case "failed":
            return sight.outcome == "failed"
        case "answer":
            return sight.outcome == "done" and sight.answer == guard.name
        case "expired":
            return sight.expired
        case "wanted":
            return sight.wanted
        case "unwanted":
            return not sight.wanted
        case "agreed":
            return guard.name in sight.agreed
        case "received":
            return sight.mail.oldest((guard.name,)) != ""
        case "any":
            return sight.mail.any(guard.name)
        case "all" | "all alive":
            return sight.mail.every(guard.name, guard.kind == "all alive")


def _oldest(state: State, sight: Sight) -> Leave | None:
    ways = {way.guard.name: way for way in state.leave if way.guard.kind == "received"}
    return ways.get(sight.mail.oldest(ways))
