"""What can be seen of a stage between two micro-steps, as plain data: the same words that the checker's states have."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from elasticfsm.mailbox import Letter
from elasticfsm.seat import Seat
from elasticfsm.testing.stage.act import COORDINATOR
from elasticfsm.testing.stage.laws import NEW, OLD

if TYPE_CHECKING:
    from elasticfsm.testing.stage.actors import Boss, Engine
    from elasticfsm.testing.stage.stage import Stage

GENERATION = {OLD: "old", NEW: "new"}


class Place(NamedTuple):
    """Where a machine stands: its state, how many steps of its list have ended, inside which one, and the outcome."""

    state: str
    step: int = 0
    inside: str = ""  # entered, released
    outcome: str = ""  # failed, or an answer


class EngineView(NamedTuple):
    """One engine. `mail` are (message, sender, receiver) on their way to it or unread, `wakes` (message, from whom)."""

    runs: bool
    machines: dict[str, Place]
    facts: frozenset[str]
    active: str
    closed: frozenset[str]
    entered: tuple[tuple[str, str, str], ...]  # generation, kind, step; not released yet
    mail: frozenset[tuple[str, str, str]]
    wakes: frozenset[tuple[str, str]]
    said: frozenset[tuple[str, str]]  # (message, sender) to the coordinator, not taken


DEAD = EngineView(False, {}, frozenset(), "", frozenset(), (), frozenset(), frozenset(), frozenset())


class View(NamedTuple):
    """Everything: the coordinator's place and every engine."""

    coordinator: Place
    engines: dict[str, EngineView]


def view(stage: Stage) -> View:
    """The view of a stage that stands."""
    boss = _place(stage, stage.boss, stage.boss.seat) if stage.boss is not None else Place("")
    if stage.boss is not None and not stage.boss.alive:
        boss = Place("dead")
    return View(boss, {name: _engine(stage, engine) for name, engine in stage.engines.items()})


def differences(left: View, right: View) -> list[str]:
    """One line for each thing in which two views differ, the left one first."""
    lines = [] if left.coordinator == right.coordinator else [f"coordinator: {left.coordinator} | {right.coordinator}"]
    for name, mine in left.engines.items():
        theirs = right.engines[name]
        for field in EngineView._fields:
            a, b = getattr(mine, field), getattr(theirs, field)
            if isinstance(a, dict):
                lines += [f"{name} {key}: {a[key]} | {b.get(key)}" for key in a if a[key] != b.get(key)]
            elif isinstance(a, frozenset) and a != b:
                lines.append(f"{name} {field}: only here {sorted(a - b)} | only there {sorted(b - a)}")
            elif a != b:
                lines.append(f"{name} {field}: {a} | {b}")
    return lines


def _engine(stage: Stage, engine: Engine) -> EngineView:
    laws, name = stage.laws, engine.name
    own = stage.program.roles[engine.role][0] if stage.program.coordinator else ""
    gone = {own} if engine.ended() else set()
    machines = {seat.name: _place(stage, engine, seat) for seat in engine.seats()}
    if engine.ended():
        machines[own] = Place(engine.ended())
    letters = [sent.letter for sent in stage.network.letters if sent.to == name] + engine.inbox()
    waves = stage.program.waves
    said = [sent.letter for sent in stage.network.letters if sent.to == COORDINATOR]
    said += stage.boss.inbox() if stage.boss is not None else []
    if not engine.alive:
        return DEAD._replace(said=frozenset((one.message, one.sender) for one in said if one.engine == name))
    return EngineView(
        runs=engine.present,
        machines=machines,
        facts=frozenset(laws.facts[name]),
        active=GENERATION.get(laws.names[name].get("active", ""), ""),
        closed=frozenset(GENERATION[identity] for who, identity in laws.closed if who == name),
        entered=tuple(sorted((GENERATION[e.identity], e.kind, e.step) for e in laws.pending[name])),
        mail=frozenset(
            (one.message, one.sender, one.receiver)
            for one in letters
            if one.message not in waves and one.receiver not in gone and one.sender != "environment"
        ),
        wakes=frozenset(
            (one.message, one.engine) for one in letters if one.message in waves and not _void(stage, engine, one)
        ),
        said=frozenset((one.message, one.sender) for one in said if one.engine == name),
    )


def _void(stage: Stage, engine: Engine, letter: Letter) -> bool:
    """Whether a wake is of a wave that has ended; it has for all members when the step that ends it is released."""
    ends = set(stage.program.waves.values())
    over = any(stage.laws.released(m) and m.answer in ends for m in engine.performer.inside.values())
    return letter.age < (engine.board.generation, engine.board.wave + int(over))


def _place(stage: Stage, actor: Engine | Boss, seat: Seat) -> Place:
    if seat.job is not None:
        progress = actor.performer.progress.get(seat.job.cancel)
        meeting = actor.performer.inside.get(seat.job.cancel)
        inside = "" if meeting is None else "released" if stage.laws.released(meeting) else "entered"
        return Place(seat.state, progress.step if progress else 0, inside, progress.answer if progress else "")
    if seat.result is None or seat.at is None:
        return Place(seat.state)
    if seat.result.outcome == "failed":
        return Place(seat.state, actor.performer.failed_at.get(seat.name, 0), "", "failed")
    return Place(seat.state, len(seat.at.steps), "", seat.result.answer)


__all__ = ["DEAD", "EngineView", "Place", "View", "differences", "view"]
