"""Collectives between engines: enter, release, leave. An instance is released when every member has entered it.

Which instance an engine is in follows from what it entered and was not released from (`Local.pending`): the oldest
entries of all members for one (generation, kind) are the same instance, because released ones are gone everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

from elasticfsm.check.moves import BUSY, QUIET, wants
from elasticfsm.check.tables import StepTable
from elasticfsm.check.world import Local, Result, World

Place = tuple[int, int]  # generation, kind


class Outcome(NamedTuple):
    """One way in which an instance may be released: what the members are told, who chose it, whether a wave ended."""

    result: int
    tag: int
    void: bool


def view(local: Local) -> dict[Place, tuple[str, ...]]:
    """For each group: the steps that this engine has entered and that were not released, oldest first."""
    found: dict[Place, tuple[str, ...]] = {}
    for entry in local.pending:
        place = (entry.generation, entry.kind)
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
    return local._replace(pending=rest, stands=stands)


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
    busy = Outcome(world.result(Result(work, full)), BUSY, work in world.tables.wave_ends)
    if any(contributed):
        return [busy._replace(tag=0)]
    return [busy, Outcome(world.result(Result(empty, full)), QUIET, empty in world.tables.wave_ends)]
