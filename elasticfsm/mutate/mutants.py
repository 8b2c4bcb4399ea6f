"""Every one-edit mutant of a protocol, made from the parsed file, not from its text."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import msgspec

from elasticfsm import language
from elasticfsm.steps import vocabulary_at

THREADS = ("background", "foreground", "steps")
CONTRACTS = ("requires", "awaits", "provides", "ends")
KINDS = (
    "drop step",
    "swap steps",
    "move step",
    "duplicate step",
    "weaken guard",
    "drop guard",
    "change target",
    "drop send",
    "drop contract",
    "drop member",
    "drop deadline",
    "other thread",
    "drop rule",
)
WEAKER = {"all": ("any", "done"), "all alive": ("any", "done"), "any": ("done",)}
Edit = Callable[[language.File, language.Vocabulary], None]
At = Callable[[language.File], language.State]
Place = tuple[str, str, str]  # role, phase (empty for an end), state


@dataclass(frozen=True)
class Mutant:
    """One edit: its kind, where it is made, what it does, in words, and how. `where: what` names it."""

    kind: str
    where: str
    what: str
    edit: Edit

    @property
    def name(self) -> str:
        """The name under which a survivor is explained."""
        return f"{self.where}: {self.what}"


def mutants(file: language.File, words: str = "") -> Iterator[Mutant]:
    """Every mutant of a protocol file whose vocabulary is `words`, in the order of the file."""
    yield from _members(file)
    yield from _rules(file)
    for role, machine in file.machines.items():
        yield from _machine(role, machine)
    used = {_name(step) for _, _, state in _states(file) for step in _listed(state)}
    for name in sorted(used & set(vocabulary_at(words).steps)):
        yield from _contracts(name, vocabulary_at(words).steps[name])


def applied(mutant: Mutant, file: language.File, words: str = "") -> tuple[language.File, language.Vocabulary]:
    """A copy of the file and of its vocabulary, with the edit made."""
    changed, vocabulary = copy.deepcopy(file), vocabulary_at(words)
    own = copy.copy(vocabulary)
    own.steps = dict(vocabulary.steps)
    mutant.edit(changed, own)
    return changed, own


def _members(file: language.File) -> Iterator[Mutant]:
    for group, roles in file.groups.items():
        for role in roles:
            yield Mutant("drop member", f"groups.{group}", f"without {role}", _on_list(("groups", group), role))
    for message, route in file.messages.items():
        sides = [[name.strip() for name in side.split(",")] for side in route.split("->")]
        for side, names in zip(("sender", "receiver"), sides, strict=True):
            for name in names if len(names) > 1 else ():
                what = f"without the {side} {name}"
                yield Mutant("drop member", f"messages.{message}", what, _reroute(message, side, name))


def _rules(file: language.File) -> Iterator[Mutant]:
    for wake in file.waves:
        yield Mutant("drop rule", f"waves.{wake}", "never void", _pop(lambda f: f.waves, wake))
    for role, machine in file.machines.items():
        for message in machine.starts if len(machine.starts) > 1 else ():
            yield Mutant("drop rule", f"{role}.starts", f"not by {message}", _pop(_starts_of(role), message))
        for name in machine.runs:
            yield Mutant("drop member", f"{role}.runs", f"without {name}", _on_list(("machines", role, "runs"), name))
        for fact in machine.holds:
            what = f"without {fact}"
            yield Mutant("drop contract", f"{role}.holds", what, _on_list(("machines", role, "holds"), fact))


def _machine(role: str, machine: language.Machine) -> Iterator[Mutant]:
    names = {name for _, name, _ in _states_of(role, machine)}
    for name, phase in machine.phases.items():
        where = f"{role}.{name} (phase)" if name in names else f"{role}.{name}"
        if phase.within and phase.within != "forever":
            yield Mutant("drop deadline", where, "no deadline", _within(role, name))
        for guard, target in phase.leave.items():
            users = [state for state in phase.states.values() if guard not in state.leave]
            if users:
                yield from _way(machine, where, guard, target, _leaves_of_phase(role, name), phase.states)
    for place, name, state in _states_of(role, machine):
        yield from _state(role, machine, place, name, state)


def _state(role: str, machine: language.Machine, place: Place, name: str, state: language.State) -> Iterator[Mutant]:
    where, at = f"{role}.{name}", _at(place)
    sends = [state.sends] if isinstance(state.sends, str) else state.sends
    for message in sends:
        yield Mutant("drop send", where, f"does not send {message}", _unsend(at, message))
    for guard, target in state.leave.items():
        yield from _way(machine, where, guard, target, lambda f: at(f).leave, {name: state})
    if not state.serves:
        yield Mutant("drop rule", where, "serves", _set(at, "serves", True))
    thread = _thread(state)
    if thread:
        yield from _steps(where, at, _listed(state))
        yield from _elsewhere(role, machine, where, at, state)
    if thread in ("background", "foreground"):
        other = "foreground" if thread == "background" else "background"
        yield Mutant("other thread", where, f"in the {other}", _rethread(at, thread, other))


def _steps(where: str, at: At, steps: list[language.Step]) -> Iterator[Mutant]:
    texts = [_text(step) for step in steps]
    last = len(texts) - 1
    for index, text in enumerate(texts):
        yield Mutant("drop step", where, f"without `{text}`", _on_steps(at, index, None))
        yield Mutant("duplicate step", where, f"`{text}` twice", _on_steps(at, index, index, keep=True))
        if index < last:
            what = f"`{texts[index + 1]}` before `{text}`"
            yield Mutant("swap steps", where, what, _on_steps(at, index + 1, index))
        if index > 1:
            yield Mutant("move step", where, f"`{text}` first", _on_steps(at, index, 0))
        if index < last - 1:
            yield Mutant("move step", where, f"`{text}` last", _on_steps(at, index, last))


def _elsewhere(
    role: str,
    machine: language.Machine,
    where: str,
    at: At,
    state: language.State,
) -> Iterator[Mutant]:
    """A step moves into the list of a state that follows: its last one, which becomes the first there."""
    steps = _listed(state)
    for target in dict.fromkeys(state.leave.values()):
        for place, name, other in _states_of(role, machine):
            if name == target and other is not state and _thread(other) and steps:
                yield Mutant("move step", where, f"`{_text(steps[-1])}` only in {name}", _carry(at, _at(place)))


def _carry(at: At, there: At) -> Edit:
    def edit(file: language.File, vocabulary: language.Vocabulary) -> None:
        _listed(there(file)).insert(0, _listed(at(file)).pop())

    return edit


def _way(
    machine: language.Machine,
    where: str,
    guard: str,
    target: str,
    leaves: Callable[[language.File], dict[str, str]],
    states: dict[str, language.State],
) -> Iterator[Mutant]:
    yield Mutant("drop guard", where, f"no way out by `{guard}`", _pop(leaves, guard))
    kind, _, name = guard.rpartition(" ")
    for weaker in WEAKER.get(kind, ("done",) if kind in ("received", "agreed") or guard == "wanted" else ()):
        text = f"{weaker} {name}" if weaker != "done" else "done"
        yield Mutant("weaken guard", where, f"`{text}` instead of `{guard}`", _rename_key(leaves, guard, text))
    for other in _other_targets(machine, target, states):
        yield Mutant("change target", where, f"`{guard}` leads to {other}", _assign(leaves, guard, other))


def _other_targets(machine: language.Machine, target: str, states: dict[str, language.State]) -> list[str]:
    """Where a way may lead by mistake: over the next state, back to where it begins, or to the other end."""
    found = []
    for _, name, state in _states_of("", machine):
        if name == target and state.leave:
            found.append(next(iter(state.leave.values())))
    if len(states) == 1:
        found += list(states)
    found += [end for end in machine.ends if target in machine.ends]
    return [name for name in dict.fromkeys(found) if name != target]


def _contracts(name: str, meaning: language.StepMeaning) -> Iterator[Mutant]:
    for field in CONTRACTS:
        for fact in getattr(meaning, field):
            what = f"`{field}` without {fact}"
            yield Mutant("drop contract", f"steps.{name}", what, _uncontract(name, field, fact))


def _uncontract(name: str, field: str, fact: str) -> Edit:
    def edit(file: language.File, vocabulary: language.Vocabulary) -> None:
        meaning = vocabulary.steps[name]
        kept = [one for one in getattr(meaning, field) if one != fact]
        changed = {"means": "local"} if field == "awaits" and not kept else {}
        vocabulary.steps[name] = msgspec.structs.replace(meaning, **{field: kept}, **changed)

    return edit


def _reroute(message: str, side: str, name: str) -> Edit:
    def edit(file: language.File, vocabulary: language.Vocabulary) -> None:
        sides = [[one.strip() for one in part.split(",")] for part in file.messages[message].split("->")]
        sides[0 if side == "sender" else 1].remove(name)
        file.messages[message] = " -> ".join(", ".join(part) for part in sides)

    return edit


def _on_list(path: tuple[str, ...], value: str) -> Edit:
    def edit(file: language.File, vocabulary: language.Vocabulary) -> None:
        found = getattr(file, path[0])
        for part in path[1:]:
            found = found[part] if isinstance(found, dict) else getattr(found, part)
        found.remove(value)

    return edit


def _pop(mapping: Callable[[language.File], dict[str, str]], key: str) -> Edit:
    return lambda file, vocabulary: mapping(file).__delitem__(key)


def _assign(mapping: Callable[[language.File], dict[str, str]], key: str, value: str) -> Edit:
    return lambda file, vocabulary: mapping(file).__setitem__(key, value)


def _rename_key(mapping: Callable[[language.File], dict[str, str]], key: str, new: str) -> Edit:
    def edit(file: language.File, vocabulary: language.Vocabulary) -> None:
        leaves = mapping(file)
        renamed = {new if guard == key else guard: target for guard, target in leaves.items() if guard != new}
        leaves.clear()
        leaves.update(renamed)

    return edit


def _within(role: str, phase: str) -> Edit:
    """Nothing expires in this phase any more: what waits there may wait for ever."""

    def edit(file: language.File, vocabulary: language.Vocabulary) -> None:
        found = file.machines[role].phases[phase]
        found.within = "forever"
        for leave in (found.leave, *(state.leave for state in found.states.values())):
            leave.pop("expired", None)

    return edit


def _set(at: At, field: str, value: object) -> Edit:
    return lambda file, vocabulary: setattr(at(file), field, value)


def _unsend(at: At, message: str) -> Edit:
    def edit(file: language.File, vocabulary: language.Vocabulary) -> None:
        state = at(file)
        sends = [state.sends] if isinstance(state.sends, str) else state.sends
        state.sends = [one for one in sends if one != message]

    return edit


def _rethread(at: At, thread: str, other: str) -> Edit:
    def edit(file: language.File, vocabulary: language.Vocabulary) -> None:
        state = at(file)
        setattr(state, other, getattr(state, thread))
        setattr(state, thread, None)

    return edit


def _on_steps(at: At, index: int, to: int | None, keep: bool = False) -> Edit:
    """A step goes to another place of its list, or away; with `keep` it stays as well."""

    def edit(file: language.File, vocabulary: language.Vocabulary) -> None:
        steps = _listed(at(file))
        step = copy.deepcopy(steps[index]) if keep else steps.pop(index)
        if to is not None:
            steps.insert(to, step)

    return edit


def _starts_of(role: str) -> Callable[[language.File], dict[str, str]]:
    return lambda file: file.machines[role].starts


def _leaves_of_phase(role: str, phase: str) -> Callable[[language.File], dict[str, str]]:
    return lambda file: file.machines[role].phases[phase].leave


def _at(place: Place) -> At:
    def find(file: language.File) -> language.State:
        machine = file.machines[place[0]]
        return machine.ends[place[2]] if place[1] == "" else machine.phases[place[1]].states[place[2]]

    return find


def _states(file: language.File) -> Iterator[tuple[Place, str, language.State]]:
    for role, machine in file.machines.items():
        yield from _states_of(role, machine)


def _states_of(role: str, machine: language.Machine) -> Iterator[tuple[Place, str, language.State]]:
    for phase_name, phase in machine.phases.items():
        for name, state in phase.states.items():
            yield (role, phase_name, name), name, state
    for name, state in machine.ends.items():
        yield (role, "", name), name, state


def _thread(state: language.State) -> str:
    return next((thread for thread in THREADS if getattr(state, thread) is not None), "")


def _listed(state: language.State) -> list[language.Step]:
    thread = _thread(state)
    return getattr(state, thread) if thread else []


def _name(step: language.Step) -> str:
    return step if isinstance(step, str) else next(iter(step))


def _text(step: language.Step) -> str:
    return step if isinstance(step, str) else ": ".join(next(iter(step.items())))
