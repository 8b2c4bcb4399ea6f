"""Checks of one protocol file on its own, without which it has no meaning: every name in it must be known."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from elasticfsm.finding import Finding, finding
from elasticfsm.reading import Document, Place
from elasticfsm.steps import fact_pattern, vocabulary_at

if TYPE_CHECKING:
    from elasticfsm.protocol import Guard, Machine, Protocol, State, Step

COORDINATOR = "coordinator"
RENAMED = "retired"  # what groups.switch calls the generation that was active
ENGINE = "engine"  # the role of every engine, in a protocol that tells no roles apart
ABOUT_MESSAGES = ("received", "any", "all", "all alive")


def unusable(protocol: Protocol, document: Document) -> list[Finding]:
    """Every reason why this file cannot be used, in the order of its lines."""
    found = [*_groups(protocol, document), *_waves(protocol, document)]
    for role, machine in protocol.machines.items():
        found += _machine(protocol, document, machine, ("machines", role))
        for state in machine.states.values():
            found += _state(protocol, document, machine, state)
    return sorted(set(found))


def place_of(machine: Machine, state: State) -> Place:
    """Where a state stands in its file."""
    if state.end:
        return ("machines", machine.role, "ends", state.name)
    return ("machines", machine.role, "phases", state.phase, "states", state.name)


def place_of_guard(machine: Machine, state: State, guard: Guard, shared: bool) -> Place:
    """Where a leave stands in its file: in the state, or in its phase."""
    if shared:
        return ("machines", machine.role, "phases", state.phase, "leave", str(guard))
    return (*place_of(machine, state), "leave", str(guard))


def _groups(protocol: Protocol, document: Document) -> Iterator[Finding]:
    known = [role for role in protocol.machines if role != COORDINATOR] + [ENGINE]
    for group, roles in protocol.groups.items():
        for role in roles:
            if role not in known:
                yield _unknown(document, ("groups", group), "role", role, known)


def _waves(protocol: Protocol, document: Document) -> Iterator[Finding]:
    for wake in protocol.waves:
        if wake not in protocol.messages:
            yield _unknown(document, ("waves", wake), "message", wake, list(protocol.messages))


def _machine(protocol: Protocol, document: Document, machine: Machine, place: Place) -> Iterator[Finding]:
    for message, target in machine.starts.items():
        if message not in protocol.messages:
            yield _unknown(document, (*place, "starts", message), "message", message, list(protocol.messages))
        if target not in machine.states:
            yield _unknown(document, (*place, "starts", message), "state", target, list(machine.states))
    if machine.runs_in and machine.runs_in not in machine.states:
        yield _unknown(document, (*place, "runs_in"), "state", machine.runs_in, list(machine.states))
    facts = vocabulary_at(protocol.vocabulary).facts
    for fact in machine.holds:
        if fact_pattern(fact, facts) is None:
            yield _unknown(document, (*place, "holds"), "fact", fact, list(facts))


def _state(protocol: Protocol, document: Document, machine: Machine, state: State) -> Iterator[Finding]:
    place = place_of(machine, state)
    for message in state.sends:
        if message not in protocol.messages:
            yield _unknown(document, (*place, "sends"), "message", message, list(protocol.messages))
    if state.within not in ("", "forever") and state.within not in protocol.deadlines:
        within = ("machines", machine.role, "phases", state.phase, "within")
        yield _unknown(document, within, "deadline", state.within, [*protocol.deadlines, "forever"])
    if state.end and state.leave:
        yield finding(document, (*place, "leave"), "an end that is left", "no `leave`", "make it a state of a phase")
    yield from _thread(document, machine, state, place)
    for index, step in enumerate(state.steps):
        yield from _argument(protocol, document, step, (*place, state.thread, index))
    for way in state.leave:
        where = place_of_guard(machine, state, way.guard, way.shared)
        if way.target not in machine.states:
            yield _unknown(document, where, "state", way.target, list(machine.states))
        known = list(protocol.votes) if way.guard.kind == "agreed" else list(protocol.messages)
        if way.guard.kind in ("agreed", *ABOUT_MESSAGES) and way.guard.name not in known:
            yield _unknown(document, where, "vote" if way.guard.kind == "agreed" else "message", way.guard.name, known)


def _thread(document: Document, machine: Machine, state: State, place: Place) -> Iterator[Finding]:
    if machine.role == COORDINATOR and state.thread in ("background", "foreground"):
        right, who = "`steps`", "the coordinator has no forward steps"
    elif machine.role != COORDINATOR and state.thread == "steps":
        right, who = "`background` or `foreground`", "say whether the forward steps go on meanwhile"
    else:
        return
    yield finding(document, (*place, state.thread), f"`{state.thread}`", right, who)


def _argument(protocol: Protocol, document: Document, step: Step, place: Place) -> Iterator[Finding]:
    """A step on a group needs one, a step about a role needs one; a step about neither may name a role."""
    roles = [role for role in protocol.machines if role != COORDINATOR] + [ENGINE]
    groups = [*protocol.groups, RENAMED]
    wanted = argument_of(step)
    known = groups if wanted == "group" else roles
    if not step.argument and wanted != "either":
        fix = f"write `{step.name}: {known[0]}`"
        yield finding(document, place, f"`{step.name}` without an argument", f"a {wanted}: {', '.join(known)}", fix)
    elif step.argument and step.argument not in known:
        yield _unknown(document, place, "role" if wanted == "either" else wanted, step.argument, known)


def argument_of(step: Step) -> str:
    """What the argument of a step names: a `group`, a `role`, or either nothing or a role (`either`)."""
    meaning = step.meaning
    facts = [*meaning.requires, *meaning.awaits, *meaning.provides, *meaning.ends]
    if meaning.kind is not None or any(fact.startswith("{} ") for fact in facts):
        return "group"
    return "role" if any(fact.startswith("all {} ") for fact in facts) else "either"


def _unknown(document: Document, place: Place, kind: str, name: str, known: list[str]) -> Finding:
    return finding(document, place, f"the unknown {kind} `{name}`", f"one of: {', '.join(known)}", _mend(name, known))


def _mend(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return f"did you mean `{near[0]}`?" if near else "correct the name, or declare it"
