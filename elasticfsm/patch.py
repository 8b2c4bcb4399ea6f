"""Patches: small edits that make a protocol wrong on purpose, applied to the parsed file before it gets its meaning.

An edit stands `at: role.state` (or `role.phase`, for the exits that its states share, if no state has that name).
`leave` sets or adds ways out, `sends` replaces what is sent, `add STEP` and `move STEP` place a step `before` or
`after` another one (without either: at the end), `thread` moves the list to another thread, `drop` removes a step, a
guard, or with `drop: state` the whole state. At `role.phase` or `role.ends`, `states` adds or replaces whole states; at
a role, `starts` sets what a message starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from elasticfsm import language
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.errors import SpecError
from elasticfsm.finding import nearest
from elasticfsm.protocol import find, parse, resolve
from elasticfsm.reading import Document, Place, read
from elasticfsm.steps import PROPERTIES, SPEC

FAULTY = SPEC / "faulty"
THREADS = ("background", "foreground", "steps")
VERBS = ("leave", "sends", "add", "drop", "move", "thread", "states", "starts")


def load_patch(path: Path | str) -> tuple[language.Patch, Document]:
    """Reads a patch by name (`kb04`) or path; raises `SpecError` with file, line, what was found and expected."""
    shipped = FAULTY / f"{path}.yaml"
    document = read(shipped if shipped.exists() else path)
    patch: language.Patch = document.convert(document.data, language.Patch, ())
    if patch.refuted not in PROPERTIES:
        told = f"unknown property `{patch.refuted}`; expected {nearest(patch.refuted, list(PROPERTIES))}"
        raise document.wrong(("refuted",), told)
    return patch, document


def patched(patch: language.Patch, document: Document) -> Program:
    """The program of a protocol after a patch; raises `SpecError` that names what an edit did not find."""
    source = read(find(patch.of))
    file = parse(source)
    edited(file, patch.edits, document, ("edits",))
    try:
        return compile_protocol(resolve(file, source))
    except SpecError as error:
        raise SpecError(f"{document.path}: after its edits {patch.of} cannot be used:\n{error}") from error


def edited(file: language.File, edits: Sequence[language.Edit], document: Document, place: Place) -> None:
    """Applies edits to a parsed file; raises `SpecError` that names what one of them did not find."""
    for number, edit in enumerate(edits):
        _apply(file, edit, document, (*place, number))


def shipped_patches() -> list[Path]:
    """The patches that come with the package; each must be refuted."""
    return sorted(FAULTY.glob("*.yaml"))


def _apply(file: language.File, edit: language.Edit, document: Document, place: Place) -> None:
    verbs = [verb for verb in VERBS if getattr(edit, verb) is not None]
    if len(verbs) != 1:
        raise document.wrong(place, f"expected one of {', '.join(VERBS)}, found {' and '.join(verbs) or 'none'}")
    role, _, name = edit.at.partition(".")
    if role not in file.machines:
        raise document.wrong(place, f"no role `{role}` in {file.protocol}; {nearest(role, list(file.machines))}")
    machine = file.machines[role]
    if edit.starts is not None and not name:
        machine.starts.update(edit.starts)
        return
    if edit.states is not None and (name in machine.phases or name == "ends"):
        (machine.ends if name == "ends" else machine.phases[name].states).update(deepcopy(edit.states))
        return
    named = any(name in phase.states for phase in machine.phases.values())
    if name in machine.phases and not named and edit.leave is not None:
        machine.phases[name].leave.update(edit.leave)
        return
    states = _home(machine, name, document, place)
    if edit.drop == "state":
        del states[name]
        return
    _edit(states[name], edit, document, place)


def _home(machine: language.Machine, name: str, document: Document, place: Place) -> dict[str, language.State]:
    """The mapping in which a state stands: its phase's, or the ends."""
    homes = [phase.states for phase in machine.phases.values()] + [machine.ends]
    for states in homes:
        if name in states:
            return states
    known = [state for states in homes for state in states]
    raise document.wrong(place, f"no state `{name}`; there is {nearest(name, known)}")


def _edit(state: language.State, edit: language.Edit, document: Document, place: Place) -> None:
    if edit.leave is not None:
        state.leave = {**state.leave, **edit.leave}
    elif edit.sends is not None:
        state.sends = edit.sends
    elif edit.thread is not None:
        thread, steps = _list(state, document, place)
        setattr(state, thread, None)
        setattr(state, edit.thread, steps)
    elif edit.drop is not None and edit.drop in state.leave:
        del state.leave[edit.drop]
    elif edit.drop is not None:
        steps = _list(state, document, place)[1]
        del steps[_find(steps, edit.drop, document, place)]
    elif edit.add is not None:
        _insert(state, edit.add, edit, document, place)
    elif edit.move is not None:
        steps = _list(state, document, place)[1]
        step = steps.pop(_find(steps, edit.move, document, place))
        _insert(state, step, edit, document, place)


def _insert(state: language.State, step: language.Step, edit: language.Edit, document: Document, place: Place) -> None:
    if state.background is state.foreground is state.steps is None:
        raise document.wrong(place, "the state has no list of steps; add one with `thread` in the protocol first")
    steps = _list(state, document, place)[1]
    if edit.before is not None:
        steps.insert(_find(steps, edit.before, document, place), step)
    elif edit.after is not None:
        steps.insert(_find(steps, edit.after, document, place) + 1, step)
    else:
        steps.append(step)


def _list(state: language.State, document: Document, place: Place) -> tuple[str, list[language.Step]]:
    for thread in THREADS:
        steps = getattr(state, thread)
        if steps is not None:
            return thread, steps
    raise document.wrong(place, "the state has no list of steps")


def _find(steps: list[language.Step], text: str, document: Document, place: Place) -> int:
    written = [_written(step) for step in steps]
    if text in written:
        return written.index(text)
    raise document.wrong(place, f"no step `{text}` here; there is {', '.join(written) or 'none'}")


def _written(step: language.Step) -> str:
    return step if isinstance(step, str) else ": ".join(next(iter(step.items())))


__all__ = ["FAULTY", "edited", "load_patch", "patched", "shipped_patches"]
