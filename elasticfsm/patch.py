"""Patches: small edits that make a protocol wrong on purpose, applied to the parsed file before it gets its meaning.

An edit stands `at: role.state` (or `role.phase`, for the exits that its states share, if no state has that name).
`leave` sets or adds ways out, `sends` replaces what is sent, `add STEP` and `move STEP` place a step `before` or
`after` another one (without either: at the end), `thread` moves the list to another thread, `drop` removes a step, a
guard, or with `drop: state` the whole state, `replace STEP` puts `by` in its place, `serves` tells whether forward
steps begin there. At `role.phase` or `role.ends`, `states` adds or replaces whole states, `within` names another
deadline; at a role, `starts` sets what a message starts. At `messages`, `groups`, `votes`, `waves` or `deadlines`,
`put` sets entries, or takes away those that are empty.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path

from elasticfsm import language
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.errors import SpecError
from elasticfsm.finding import nearest
from elasticfsm.protocol import find, load, parse, resolve
from elasticfsm.reading import Document, Place, read
from elasticfsm.steps import PROPERTIES, SPEC, extended, name_beside

FAULTY = SPEC / "faulty"
THREADS = ("background", "foreground", "steps")
VERBS = ("leave", "sends", "add", "drop", "move", "thread", "states", "starts", "replace", "put", "within", "serves")
TABLES = ("messages", "groups", "votes", "waves", "deadlines")


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
        words = name_beside(source.path, file.vocabulary)
        file.vocabulary = extended(words, patch.facts, patch.steps, document) if patch.steps else file.vocabulary
        protocol = resolve(file, source)
        return (
            compile_protocol(load(patch.inside), {patch.of: protocol}) if patch.inside else compile_protocol(protocol)
        )
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
    if edit.put is not None and edit.at in TABLES:
        _put(file, edit.at, edit.put)
    elif role not in file.machines:
        raise document.wrong(place, f"no role `{role}` in {file.protocol}; {nearest(role, list(file.machines))}")
    elif not _whole(file.machines[role], name, edit):
        states = _home(file.machines[role], name, document, place)
        if edit.drop == "state":
            del states[name]
        else:
            _edit(states[name], edit, document, place)


def _whole(machine: language.Machine, name: str, edit: language.Edit) -> bool:
    """Whether the edit was one of a machine or of a phase; then it is made."""
    phase = machine.phases.get(name)
    named = any(name in other.states for other in machine.phases.values())
    if edit.starts is not None and not name:
        machine.starts.update(edit.starts)
    elif edit.states is not None and (phase is not None or name == "ends"):
        (machine.ends if phase is None else phase.states).update(deepcopy(edit.states))
    elif phase is not None and edit.within is not None:
        phase.within = edit.within
    elif phase is not None and not named and edit.leave is not None:
        phase.leave.update(edit.leave)
    elif phase is not None and edit.drop is not None and edit.drop in phase.leave and not _own(phase, name, edit.drop):
        del phase.leave[edit.drop]
    else:
        return False
    return True


def _own(phase: language.Phase, name: str, guard: str) -> bool:
    """Whether a state of that name has the guard itself; then an edit is about the state and not about its phase."""
    return name in phase.states and guard in phase.states[name].leave


def _put(file: language.File, table: str, entries: dict[str, str | list[str] | None]) -> None:
    if table == "votes":
        file.votes = [vote for vote in file.votes if vote not in entries] + [vote for vote in entries if entries[vote]]
        return
    found = getattr(file, table)
    for name, value in entries.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = float(value) if table == "deadlines" else value  # type: ignore[arg-type]


def _home(machine: language.Machine, name: str, document: Document, place: Place) -> dict[str, language.State]:
    """The mapping in which a state stands: its phase's, or the ends."""
    homes = [phase.states for phase in machine.phases.values()] + [machine.ends]
    for states in homes:
        if name in states:
            return states
    known = [state for states in homes for state in states]
    raise document.wrong(place, f"no state `{name}`; there is {nearest(name, known)}")


def _edit(state: language.State, edit: language.Edit, document: Document, place: Place) -> None:
    for verb, kind in (("states", "phase"), ("within", "phase"), ("starts", "role"), ("put", "table")):
        if getattr(edit, verb) is not None:
            raise document.wrong(place, f"`{verb}` is an edit of a {kind}, and `{edit.at}` is none")
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
    elif edit.serves is not None:
        state.serves = edit.serves
    elif edit.replace is not None:
        steps = _list(state, document, place)[1]
        steps[_find(steps, edit.replace, document, place)] = edit.by or ""
    elif edit.move is not None:
        steps = _list(state, document, place)[1]
        step = steps.pop(_find(steps, edit.move, document, place))
        _insert(state, step, edit, document, place)


def _insert(state: language.State, step: language.Step, edit: language.Edit, document: Document, place: Place) -> None:
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
