"""Collectives between engines: enter, release, leave. An instance is released when every member has entered it.

Which instance an engine is in follows from what it entered and was not released from (`Local.pending`): the oldest
entries of all members for one (generation, kind) are the same instance, because released ones are gone everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

from elasticfsm.check.move import AGREED, BUSY, QUIET
from elasticfsm.check.moves import wants
from elasticfsm.check.tables import StepTable
from elasticfsm.check.world import Local, Result, World

EVERY = 0b1111  # both generations are closed, and not on purpose
Place = tuple[int, int]  # generation, kind


class Outcome(NamedTuple):
    """One way in which an instance may be released: what the members are told, who chose it, whether a wave ended."""

    result: int
    tag: int
    void: bool


def view(local: Local, queued: frozenset[str] = frozenset()) -> dict[Place, tuple[str, ...]]:
    """For each group: the steps that this engine has entered and that were not released, oldest first.

    `queued` are steps that share one device queue, in order: what was issued behind one of another group has not begun.
    """
    found: dict[Place, tuple[str, ...]] = {}
    running: Place | None = None
    blocked = False
    for entry in local.pending:
        place = (entry.generation, entry.kind)
        if entry.step in queued:
            running = running or place
            blocked = blocked or place != running
            if blocked:
                continue
        found[place] = (*found.get(place, ()), entry.step)
    return found


def released(world: World, local: Local, place: Place, result: int) -> Local:
    """The local state of a member after its oldest instance on this group was released."""
    index = next(i for i, entry in enumerate(local.pending) if (entry.generation, entry.kind) == place)
    entry = local.pending[index]
    rest = local.pending[:index] + local.pending[index + 1 :]
    stands = local.stands
    stand = stands[entry.machine] if entry.machine >= 0 else None
    if stand is not None:
        stands = (*stands[: entry.machine], stand._replace(inside=result), *stands[entry.machine + 1 :])
    after = local._replace(pending=rest, stands=stands)
    if not local.dead:
        return after
    return buried(after._replace(switched=local.switched or entry.step in world.tables.joins))


def buried(local: Local) -> Local:
    """The local state of a dead engine: what it had sent, and what it had contributed to collectives that go on.

    `switched` then says that it counts as one of the new generation: what it contributed to the join was made use of.
    """
    keep = bool(local.pending)
    return local._replace(
        present=False,
        dead=True,
        inbox=0,
        closed=EVERY,
        facts=local.facts if keep else 0,
        stands=local.stands if keep else tuple(None for _ in local.stands),
    )


def outcomes(world: World, step: StepTable, members: list[Local]) -> list[Outcome]:
    """What the release of a collective may answer; requests are free, so `work` is always possible."""
    if step.means == "agree":
        return _agreements(world, step, members)
    if step.asks:
        held = all(local.facts & step.asks == step.asks for local in members)
        return [Outcome(world.result(Result(step.answers[0 if held else 1], 0)), 0, False)]
    return [Outcome(world.result(Result(answer, 0)), 0, False) for answer in step.answers or ("",)]


def _agreements(world: World, step: StepTable, members: list[Local]) -> list[Outcome]:
    contributed = [wants(world, local) for local in members]
    full = contributed[0]
    for votes in contributed:
        full &= votes
    work, empty = step.answers
    busy = Outcome(world.result(Result(work, full)), BUSY | AGREED, work in world.tables.wave_ends)
    if any(contributed):
        return [busy._replace(tag=AGREED)]
    return [busy, Outcome(world.result(Result(empty, full)), QUIET | AGREED, empty in world.tables.wave_ends)]
