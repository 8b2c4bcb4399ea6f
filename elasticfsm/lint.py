"""Static checks of a protocol that can be used: what a reader would find odd, found before anything is explored."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from elasticfsm.compile import OUTSIDE, Program, compile_protocol
from elasticfsm.errors import SpecError
from elasticfsm.finding import Finding, finding
from elasticfsm.lint_facts import facts
from elasticfsm.protocol import Machine, Protocol, State, load
from elasticfsm.reading import Document, Place, read
from elasticfsm.usable import ABOUT_MESSAGES, COORDINATOR, place_of, place_of_guard

BY_OTHERS = frozenset({"died", "lost"})  # the watchdog sends it in the name of the dead; no machine does
SAME_FOR_ALL = ("rendezvous", "agree")  # steps whose answer is the same on every member


class Subject(msgspec.Struct):
    """What a check looks at: one file, its protocol, and the program that it is part of."""

    protocol: Protocol
    program: Program
    document: Document


def lint(protocol: Protocol) -> list[Finding]:
    """Every finding in the protocol's own file, in the order of its lines; what it stands on is checked on its own.

    Raises `SpecError` when the file cannot be read or composed at all.
    """
    document = read(protocol.path)
    if missing := list(_strangers(protocol, document)):
        return sorted(set(missing))
    subject = Subject(protocol, compile_protocol(protocol), document)
    found = [entry for check in _CHECKS for entry in check(subject)]
    found += facts(protocol, subject.program, document, {role: reachable(m) for role, m in protocol.machines.items()})
    return sorted(set(found))


def reachable(machine: Machine) -> set[str]:
    """The states that some sequence of leaves reaches, whatever guards them."""
    seen: set[str] = set()
    ahead = [*machine.starts.values(), *([machine.runs_in] if machine.runs_in else [])]
    while ahead:
        name = ahead.pop()
        if name not in seen:
            seen.add(name)
            ahead += [way.target for way in machine.states[name].leave]
    return seen


def _strangers(protocol: Protocol, document: Document) -> Iterator[Finding]:
    """Names of other protocols and machines that do not exist: without them nothing can be composed."""
    known = {f"{protocol.name}.{role}" for role in protocol.machines} | set(protocol.machines)
    for index, over in enumerate(protocol.over):
        try:
            known |= set(compile_protocol(load(over)).machines)
        except SpecError as error:
            yield finding(document, ("over", index), f"`{over}`", "a protocol that can be loaded", str(error))
    expected = f"one of: {', '.join(sorted(known - set(protocol.machines)))}"
    for role, machine in protocol.machines.items():
        for name in machine.runs:
            if name not in known:
                place: Place = ("machines", role, "runs")
                yield finding(
                    document, place, f"the unknown machine `{name}`", expected, "name its protocol in `over:`"
                )
    for message in protocol.messages.values():
        for side in (*message.senders, *message.receivers):
            if side not in known | OUTSIDE:
                place = ("messages", message.name)
                fix = "correct the name, or name its protocol in `over:`"
                yield finding(document, place, f"the unknown machine `{side}`", expected, fix)


def _states(protocol: Protocol) -> Iterator[tuple[Machine, State]]:
    for machine in protocol.machines.values():
        for state in machine.states.values():
            yield machine, state


def _sent(machine: Machine) -> set[str]:
    return {message for state in machine.states.values() for message in state.sends}


def _wanted(machine: Machine) -> set[str]:
    guards = [way.guard for state in machine.states.values() for way in state.leave]
    return set(machine.starts) | {guard.name for guard in guards if guard.kind in ABOUT_MESSAGES}


def _machine_named(subject: Subject, name: str) -> Machine | None:
    """The machine of a side of a message; nothing for the world outside."""
    full = name if "." in name else f"{subject.protocol.name}.{name}"
    return subject.program.machines.get(full)


def _messages(subject: Subject) -> Iterator[Finding]:
    """A message that one side declares and does not use."""
    for message in subject.protocol.messages.values():
        place = ("messages", message.name)
        senders = {side: _machine_named(subject, side) for side in message.senders}
        receivers = {side: _machine_named(subject, side) for side in message.receivers}
        silent = [side for side, m in senders.items() if m is not None and message.name not in _sent(m)]
        deaf = [side for side, m in receivers.items() if m is not None and message.name not in _wanted(m)]
        if message.name in BY_OTHERS:
            silent = []
        if len(silent) == len(senders) and len(deaf) == len(receivers):
            yield finding(subject.document, place, "a message that nobody uses", "a sender and a receiver", "remove it")
            continue
        for side in silent:
            expected = f"`sends: {message.name}` in a state of `{side}`"
            fix = f"send it, or take `{side}` from its senders"
            yield finding(subject.document, place, f"`{message.name}`, which `{side}` never sends", expected, fix)
        for side in deaf:
            expected = f"a guard or `starts` of `{side}` that wants it"
            fix = f"want it, or take `{side}` from its receivers"
            yield finding(subject.document, place, f"`{message.name}`, which `{side}` never wants", expected, fix)


def _undeclared(subject: Subject) -> Iterator[Finding]:
    """A message that a role sends or wants although its declaration says otherwise."""
    messages = subject.protocol.messages
    for machine, state in _states(subject.protocol):
        for name in state.sends:
            if machine.role not in _own_sides(subject, messages[name].senders):
                place = (*place_of(machine, state), "sends")
                fix = f"add `{machine.role}` to the senders of `{name}`"
                yield _sides(subject, place, f"`{machine.role}` sending `{name}`", messages[name].senders, fix)
        for way in state.leave:
            guard = way.guard
            if guard.kind in ABOUT_MESSAGES and machine.role not in _own_sides(subject, messages[guard.name].receivers):
                place = place_of_guard(machine, state, guard, way.shared)
                fix = f"add `{machine.role}` to the receivers of `{guard.name}`"
                found = f"`{guard}` in `{machine.role}`"
                yield _sides(subject, place, found, messages[guard.name].receivers, fix)


def _own_sides(subject: Subject, sides: tuple[str, ...]) -> set[str]:
    return {side.removeprefix(f"{subject.protocol.name}.") for side in sides}


def _sides(subject: Subject, place: Place, found: str, sides: tuple[str, ...], fix: str) -> Finding:
    return finding(subject.document, place, found, f"only {' and '.join(sides)} to do so", fix)


def _votes(subject: Subject) -> Iterator[Finding]:
    asked = {vote for _, state in _states(subject.protocol) for vote in state.asked()}
    for vote in subject.protocol.votes:
        if vote not in asked:
            fix = "remove it, or wait for it"
            expected = f"a state with `agreed {vote}`"
            yield finding(subject.document, ("votes",), f"the vote `{vote}`, which nobody asks", expected, fix)


def _unreachable(subject: Subject) -> Iterator[Finding]:
    for machine in subject.protocol.machines.values():
        seen = reachable(machine)
        for state in machine.states.values():
            if state.name not in seen:
                place = place_of(machine, state)
                fix = "remove it, or lead to it"
                found = f"`{state.name}`, which no way leads to"
                yield finding(subject.document, place, found, "a leave or a start with it as target", fix)


def _waits(subject: Subject) -> Iterator[Finding]:
    """A wait has a deadline and a way out of it, or says that it may last for ever."""
    for machine, state in _states(subject.protocol):
        kinds = {way.guard.kind for way in state.leave}
        if state.end or state.within == "forever":
            continue
        if not state.steps and "done" not in kinds and "expired" not in kinds:
            place = place_of(machine, state)
            expected = "`within:` and `expired`, or `within: forever`, in its phase"
            fix = "say what happens when nothing comes"
            yield finding(subject.document, place, f"`{state.name}`, a wait without an end", expected, fix)
        if "expired" in kinds and not state.within:
            way = next(way for way in state.leave if way.guard.kind == "expired")
            place = place_of_guard(machine, state, way.guard, way.shared)
            fix = f"give the phase `{state.phase}` a deadline"
            yield finding(subject.document, place, "`expired` in a phase without `within:`", "a deadline", fix)


def _failures(subject: Subject) -> Iterator[Finding]:
    """Any step may fail; where the machine has no way out then, its engine ends: as nobody wanted, unless said so."""
    for machine, state in _states(subject.protocol):
        caught = any(way.guard.kind == "failed" for way in state.leave)
        place = place_of(machine, state)
        if state.steps and not caught and not state.fatal:
            fix = "say where a failed step leads, or that it ends the engine"
            found = f"`{state.name}`, whose steps may fail"
            yield finding(subject.document, place, found, "a leave `failed`, or `fatal: true` in its phase", fix)
        if state.steps and state.fatal and any(way.guard.kind == "failed" and way.shared for way in state.leave):
            found = f"`{state.name}`, which leaves by the `failed` of a phase with `fatal: true`"
            yield finding(subject.document, place, found, "one of the two", "remove one")


def _answers(subject: Subject) -> Iterator[Finding]:
    """Answers and guards belong together, and no rank answers alone what all must answer alike."""
    for machine, state in _states(subject.protocol):
        place = place_of(machine, state)
        answering = [step for step in state.steps if step.meaning.answers]
        given = {answer for step in answering for answer in step.meaning.answers}
        guards = {way.guard.name: way for way in state.leave if way.guard.kind == "answer"}
        for name, way in guards.items():
            if name not in given:
                where = place_of_guard(machine, state, way.guard, way.shared)
                expected = f"one of: {', '.join(sorted(given))}" if given else "a step that answers"
                yield finding(
                    subject.document, where, f"`answer {name}`, which no step here gives", expected, "remove it"
                )
        covered = any(way.guard.kind == "done" for way in state.leave)
        for answer in sorted(given - set(guards)) if not covered else []:
            fix = f"write `answer {answer}: STATE`"
            yield finding(subject.document, place, f"no guard for the answer `{answer}`", "one for every answer", fix)
        for step in answering:
            if machine.role != COORDINATOR and step.meaning.means not in SAME_FOR_ALL:
                where = (*place, state.thread, state.steps.index(step))
                expected = "answers only from the coordinator or from a rendezvous, which are the same for all"
                yield finding(subject.document, where, f"`{step}`, a local answer", expected, "agree on it first")


_CHECKS: tuple[Callable[[Subject], Iterator[Finding]], ...] = (
    _messages,
    _undeclared,
    _votes,
    _unreachable,
    _waits,
    _failures,
    _answers,
)
