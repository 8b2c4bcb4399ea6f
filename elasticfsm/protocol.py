"""A protocol as the rest of the package sees it: roles, states, guards, steps and messages, typed and resolved."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from elasticfsm import language
from elasticfsm.errors import SpecError
from elasticfsm.finding import nearest
from elasticfsm.parsing import parse
from elasticfsm.reading import Document, Place, read
from elasticfsm.steps import SPEC, name_beside, vocabulary_at
from elasticfsm.usable import unusable

GuardKind = Literal[
    "done", "failed", "expired", "wanted", "unwanted", "agreed", "received", "all", "all alive", "any", "answer"
]
Thread = Literal["background", "foreground", "steps", ""]
_BARE = ("done", "failed", "expired", "wanted", "unwanted")
_NAMED = ("agreed", "received", "all alive", "all", "any", "answer")


class Guard(msgspec.Struct, frozen=True):
    """What ends a state: its kind, and the message, vote or answer that it names."""

    kind: GuardKind
    name: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".rstrip()

    @property
    def trigger(self) -> str:
        """The name of the `transitions` trigger: the guard with underscores."""
        return str(self).replace(" ", "_")


class Step(msgspec.Struct, frozen=True):
    """A step in a state: the adapter method that performs it, and its argument (a group or a role)."""

    name: str
    argument: str = ""
    vocabulary: str = ""  # of the protocol file; empty for the shipped one

    def __str__(self) -> str:
        return f"{self.name}: {self.argument}" if self.argument else self.name

    @property
    def meaning(self) -> language.StepMeaning:
        """Its entry in the vocabulary."""
        return vocabulary_at(self.vocabulary).steps[self.name]

    def facts(self, field: Literal["requires", "awaits", "provides", "ends"]) -> tuple[str, ...]:
        """The facts of one field with the argument filled in."""
        found: list[str] = getattr(self.meaning, field)
        return tuple(fact.replace("{}", self.argument) for fact in found)


class Leave(msgspec.Struct, frozen=True):
    """One way out of a state."""

    guard: Guard
    target: str
    shared: bool = False  # an exit of the phase, not written in the state itself


class State(msgspec.Struct, frozen=True):
    """A state with everything that its phase gives to it; `leave` is in order of precedence."""

    name: str
    phase: str
    within: str
    thread: Thread
    steps: tuple[Step, ...]
    sends: tuple[str, ...]
    leave: tuple[Leave, ...]
    serves: bool
    end: bool
    fatal: bool = False  # a failed step ends the engine, on purpose

    def asked(self) -> tuple[str, ...]:
        """The votes that an engine casts by being in this state."""
        return tuple(way.guard.name for way in self.leave if way.guard.kind == "agreed")


class Machine(msgspec.Struct, frozen=True):
    """What one role of one protocol does."""

    role: str
    count: str
    inside: str
    starts: dict[str, str]
    runs: tuple[str, ...]
    runs_in: str
    holds: tuple[str, ...]
    states: dict[str, State]

    @property
    def first(self) -> str:
        """The state in which it stands on an engine that serves already."""
        return self.runs_in or next(iter(self.starts.values()))


class Message(msgspec.Struct, frozen=True):
    """A message: which roles send it to which roles (`protocol.role` for another protocol's machines)."""

    name: str
    senders: tuple[str, ...]
    receivers: tuple[str, ...]


class Protocol(msgspec.Struct, frozen=True):
    """One protocol file, resolved."""

    name: str
    path: str
    over: tuple[str, ...]
    kinds: dict[str, str]
    groups: dict[str, tuple[str, ...]]
    messages: dict[str, Message]
    votes: tuple[str, ...]
    waves: dict[str, str]
    deadlines: dict[str, float]
    machines: dict[str, Machine]
    vocabulary: str = ""


def load(path: Path | str) -> Protocol:
    """Loads a protocol by name (`scale_up`) or path; raises `SpecError` naming file, line, found and expected."""
    document = read(find(path))
    return resolve(parse(document), document)


def find(path: Path | str) -> Path:
    """The file of a shipped protocol, or the path itself."""
    shipped = SPEC / f"{path}.yaml"
    return shipped if shipped.exists() else Path(path)


def resolve(file: language.File, document: Document) -> Protocol:
    """Gives meaning to a parsed file; raises `SpecError` with every name in it that is not known, a line each."""
    words = name_beside(document.path, file.vocabulary)
    machines = {role: _machine(document, role, machine, words) for role, machine in file.machines.items()}
    messages = {name: _message(document, name, text) for name, text in file.messages.items()}
    protocol = Protocol(
        name=file.protocol,
        path=str(document.path),
        over=tuple(file.over),
        kinds={str(kind): str(queue) for kind, queue in file.kinds.items()},
        groups={name: tuple(roles) for name, roles in file.groups.items()},
        messages=messages,
        votes=tuple(file.votes),
        waves=dict(file.waves),
        deadlines=dict(file.deadlines),
        machines=machines,
        vocabulary=words,
    )
    if findings := unusable(protocol, document):
        raise SpecError("\n".join(map(str, findings)))
    return protocol


def _machine(document: Document, role: str, raw: language.Machine, words: str) -> Machine:
    states: dict[str, State] = {}
    for phase_name, phase in raw.phases.items():
        for name, state in phase.states.items():
            place: Place = ("machines", role, "phases", phase_name, "states", name)
            if name in states:
                raise document.wrong(place, f"the state `{name}` stands in two phases; give one another name")
            states[name] = _state(document, name, state, phase_name, phase, place, words)
    for name, state in raw.ends.items():
        states[name] = _state(
            document, name, state, "", language.Phase(states={}), ("machines", role, "ends", name), words, end=True
        )
    return Machine(
        role=role,
        count=str(raw.count),
        inside=raw.inside,
        starts=dict(raw.starts),
        runs=tuple(raw.runs),
        runs_in=raw.runs_in,
        holds=tuple(raw.holds),
        states=states,
    )


def _state(
    document: Document,
    name: str,
    raw: language.State,
    phase_name: str,
    phase: language.Phase,
    place: Place,
    words: str,
    end: bool = False,
) -> State:
    threads: list[Thread] = [t for t in ("background", "foreground", "steps") if getattr(raw, t) is not None]
    if len(threads) > 1:
        raise document.wrong(place, f"found {' and '.join(threads)}, expected one list of steps")
    thread: Thread = threads[0] if threads else ""
    listed: list[language.Step] = getattr(raw, thread) if thread else []
    steps = tuple(_step(document, step, (*place, thread, index), words) for index, step in enumerate(listed))
    shared = {guard: target for guard, target in phase.leave.items() if guard not in raw.leave}
    ways = tuple(
        Leave(_guard(document, guard, (*place, "leave", guard)), target, guard in shared)
        for guard, target in {**raw.leave, **shared}.items()
    )
    sends = (raw.sends,) if isinstance(raw.sends, str) else tuple(raw.sends)
    return State(name, phase_name, phase.within, thread, steps, sends, ways, raw.serves, end, phase.fatal)


def _step(document: Document, raw: language.Step, place: Place, words: str) -> Step:
    if isinstance(raw, dict) and len(raw) != 1:
        raise document.wrong(place, f"expected one step, found {len(raw)} keys: {', '.join(raw)}")
    name, argument = next(iter(raw.items())) if isinstance(raw, dict) else (raw, "")
    known = vocabulary_at(words).steps
    if name not in known:
        told = f"spec/{words or 'steps.yaml'} has {nearest(name, list(known))}"
        raise document.wrong(place, f"unknown step `{name}`; {told}")
    return Step(name, argument, words)


def _guard(document: Document, text: str, place: Place) -> Guard:
    if text in _BARE:
        return Guard(text)  # type: ignore[arg-type]
    for kind in _NAMED:
        if text.startswith(kind + " ") and " " not in text[len(kind) + 1 :]:
            return Guard(kind, text[len(kind) + 1 :])  # type: ignore[arg-type]
    expected = ", ".join([*_BARE, *(f"{kind} NAME" for kind in _NAMED)])
    raise document.wrong(place, f"expected a guard ({expected}), found `{text}`")


def _message(document: Document, name: str, text: str) -> Message:
    sides = text.split("->")
    if len(sides) != 2 or not all(side.strip() for side in sides):
        raise document.wrong(("messages", name), f"expected `sender, ... -> receiver, ...`, found `{text}`")
    senders, receivers = ([role.strip() for role in side.split(",")] for side in sides)
    return Message(name, tuple(senders), tuple(receivers))


def shipped() -> list[str]:
    """Names of the protocols that come with the package, in the order in which they build on each other."""
    names = [path.stem for path in SPEC.glob("*.yaml") if path.stem != "steps"]
    order = ["serving", "rebalance", "scale_up", "scale_down"]
    return sorted(names, key=lambda name: (order.index(name) if name in order else len(order), name))


__all__ = [
    "Guard",
    "Leave",
    "Machine",
    "Message",
    "Protocol",
    "SpecError",
    "State",
    "Step",
    "find",
    "load",
    "parse",
    "resolve",
    "shipped",
]
