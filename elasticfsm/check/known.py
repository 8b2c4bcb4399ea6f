"""What follows from a local state alone: its moves, what others may see of it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from elasticfsm.check.collectives import Place, view
from elasticfsm.check.move import Move
from elasticfsm.check.moves import at_boundary, moves_of
from elasticfsm.check.tables import NEW
from elasticfsm.check.world import (
    ABORTED,
    ABSENT,
    DONE,
    ENTERED,
    OTHER_END,
    OUT,
    RUNNING,
    Local,
    World,
    ended,
)

Safe = Callable[[Local, Move, list[Move]], bool]  # whether a move, one of several, may be explored alone


class Known(NamedTuple):
    """What follows from a local state alone."""

    plain: list[tuple[int, Move]]
    open: list[tuple[int, Move]]
    view: dict[Place, tuple[str, ...]]
    inside: frozenset[tuple[int, str]]
    waits: frozenset[tuple[int, str]]  # ... and those of them that were not released
    closed: int
    facts: int
    outbox: int
    sent: int
    end: int
    bad: tuple[str, ...]
    rests: bool
    alarm: bool
    alone: tuple[tuple[int, Move], ...]
    hears: int
    wanted: int = 0  # facts of others that its machines may still ask for


class Locals(dict[int, Known]):
    """What is known about each local state, learned when it is first asked for."""

    def __init__(self, world: World, safe: Safe | None) -> None:
        super().__init__()
        self.world = world
        self._safe = safe

    def __missing__(self, number: int) -> Known:
        known = self[number] = _learn(self.world, self.world.locals[number], self._safe)
        return known


class Settled(dict[int, int]):
    """Where a local state leads by moves that may be explored alone and concern this engine only."""

    def __init__(self, known: Locals) -> None:
        super().__init__()
        self._known = known
        self._world = known.world
        self.passed: list[Move] = []

    def __missing__(self, number: int) -> int:
        target = number
        while (step := self.step(target)) is not None:
            target = step[0]
            self.passed.append(step[1])
        self[number] = target
        return target

    def step(self, number: int) -> tuple[int, Move] | None:
        """The next such move, if there is one; nothing that a property looks at is passed over."""
        known = self._known[number]
        if known.bad or known.alarm:
            return None
        return next(
            (pair for pair in known.alone if pair in known.plain and not self._takes_away(known, pair[0])), None
        )

    def _takes_away(self, known: Known, target: int) -> bool:
        """Whether a fact ends here that others may ask for: that depends on them (see `Successors.single`)."""
        return bool(known.facts & ~self._world.locals[target].facts & self._world.tables.elsewhere)


def _learn(world: World, local: Local, safe: Safe | None) -> Known:
    if local.dead:
        return Known(
            plain=[],
            open=[],
            view=view(local, world.queued),
            inside=frozenset(),
            waits=frozenset(),
            closed=local.closed,
            facts=0,
            outbox=local.outbox,
            sent=local.outbox << 1,
            end=0,
            bad=(),
            rests=True,
            alarm=False,
            alone=(),
            hears=0,
        )
    moves = moves_of(world, local)
    numbered = [(world.local(move.target), move) for move in moves]
    again = world.regime.duplicates > 0  # then a message that is taken is the environment's affair as well
    left = [
        (number, move)
        for number, move in numbered
        if _is_open(move) or move.target.outbox != local.outbox or (again and local.inbox & ~world.locals[number].inbox)
    ]
    return Known(
        plain=[pair for pair in numbered if pair not in left],
        open=left,
        view=view(local, world.queued),
        inside=frozenset(_inside(world, local)),
        waits=frozenset((entry.generation, entry.step) for entry in local.pending),
        closed=local.closed,
        facts=local.facts,
        outbox=local.outbox,
        sent=local.outbox << 1 | local.present,
        end=_end(world, local),
        bad=_bad(world, local),
        rests=_rests(world, local),
        alarm=_alarm(world, local, moves),
        alone=tuple(pair for pair in numbered if safe and safe(local, pair[1], moves)),
        hears=world.forget.hears(local) if world.forget else -1,
        wanted=world.forget.wanted(local) if world.forget else -1,
    )


def _alarm(world: World, local: Local, moves: list[Move]) -> bool:
    """Whether the engine does, or is about to do, what a regime without cancel and faults excludes (see `reduce`)."""
    sends = any(move.target.inbox & ~local.inbox & world.tables.interrupts for move in moves)
    return sends or bool(local.closed >> NEW & 1) or bool(local.outbox & world.tables.alarms)


def _is_open(move: Move) -> bool:
    return bool(
        move.cost >= 0
        or move.enters
        or move.takes >= 0
        or move.peers
        or move.cut >= 0
        or move.needs
        or move.lacks
        or move.requires
        or move.closes >= 0
    )


def _inside(world: World, local: Local) -> list[tuple[int, str]]:
    found = [(entry.generation, entry.step) for entry in local.pending]
    for machine, stand in enumerate(local.stands):
        step = world.step_of(local, machine)
        if stand is not None and step is not None and stand.inside != OUT and step.group:
            place = world.tables.resolve(world.tables.roles[local.role], local.switched, step.group)
            found.append((place or 0, step.name))
    return found


def _end(world: World, local: Local) -> int:
    if not world.operation:
        return RUNNING
    stand, state = local.stands[0], world.state_of(local, 0)
    if stand is None or state is None:
        return ABSENT
    if not state.end or (local.facts & world.suspends and _serves(world, local)):
        return RUNNING
    return {"done": DONE, "aborted": ABORTED}.get(state.name, OTHER_END)


def _serves(world: World, local: Local) -> bool:
    tables = world.machines[local.role]
    return any(table.serving and stand is not None for table, stand in zip(tables, local.stands, strict=True))


def _bad(world: World, local: Local) -> tuple[str, ...]:
    """What is wrong with a local state: a machine's invariant, or a step whose required facts went away."""
    missing, kept = 0, 0
    for machine, stand in enumerate(local.stands):
        if stand is None:
            continue
        state = world.state_of(local, machine)
        if state and state.end and world.operation and machine == 0:
            kept = local.facts & world.tables.leaks[world.tables.roles[local.role]].get(state.name, 0)
        if state and not state.end:
            missing |= world.machines[local.role][machine].holds & ~local.facts
        step = world.step_of(local, machine)
        if step is not None and stand.inside == ENTERED:
            missing |= step.requires & ~local.facts
    return (*world.tables.facts.refuted_by(missing), *(("no_leak",) if kept else ()))


def _rests(world: World, local: Local) -> bool:
    """Whether this engine may stay as it is for ever: no list is running, and every phase says `within: forever`."""
    for machine, stand in enumerate(local.stands):
        state = world.state_of(local, machine)
        if stand is None or state is None or (world.operation and machine == 0 and state.end):
            continue
        if not state.rests or (state.steps and not ended(state, stand)):
            return False
    return at_boundary(world, local)
