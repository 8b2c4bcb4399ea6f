"""The successors of a global state: local moves are looked up, only what depends on other engines is computed here."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from elasticfsm.check.collectives import Outcome, Place, outcomes, released, view
from elasticfsm.check.coordinator import BossMove, boss_moves
from elasticfsm.check.moves import Move, at_boundary, moves_of
from elasticfsm.check.tables import OLD, StepTable
from elasticfsm.check.world import (
    ABORTED,
    ABSENT,
    DONE,
    ENTERED,
    OTHER_END,
    OUT,
    RUNNING,
    Local,
    Regime,
    Stand,
    State,
    World,
    ended,
)

BOSS = -1  # `who` of a transition of the coordinator


class Interrupted(Exception):  # noqa: N818 - no error: a reduction was too bold, the run is repeated without it
    """Something happened that the bold reduction excludes: a withdrawal, or a group of serving engines that was closed."""


class Transition(NamedTuple):
    """One step of the whole system: who moves, where it leads, which properties it refutes, who chose it."""

    target: State
    move: Move | BossMove
    who: int
    tag: int = 0
    bad: tuple[str, ...] = ()
    said: str = ""


class Known(NamedTuple):
    """What follows from a local state alone."""

    plain: list[tuple[int, Move]]
    open: list[tuple[int, Move]]
    view: dict[Place, tuple[str, ...]]
    inside: frozenset[tuple[int, str]]
    closed: int
    facts: int
    outbox: int
    sent: int
    end: int
    bad: tuple[str, ...]
    rests: bool
    alone: tuple[tuple[int, Move], ...]
    hears: int


class _Known(dict[int, Known]):
    """What is known about each local state, learned when it is first asked for."""

    def __init__(self, learn: Callable[[int], Known]) -> None:
        super().__init__()
        self._learn = learn

    def __missing__(self, number: int) -> Known:
        known = self[number] = self._learn(number)
        return known


class Successors:
    """Expands states of one world. `safe(local, move)` names moves that may be taken alone (see `reduce`)."""

    def __init__(self, world: World, safe: Callable[[Local, Move, list[Move]], bool] | None = None) -> None:
        self.world = world
        self.safe = safe
        self.known = _Known(self._learn)
        self._boss: dict[int, list[tuple[int, BossMove]]] = {}
        self._ready: dict[tuple[int, ...], list[tuple[int, BossMove]]] = {}
        self._changed: dict[tuple[object, ...], int] = {}
        count = world.count
        self._lanes = [  # for each engine and each message between peers: its number, and the bits of messages to it
            (who + 1, message, ((1 << count) - 1) << (message * count + who) * count)
            for who in range(count)
            for message in range(len(world.tables.mail.peers))
        ]

    def _learn(self, number: int) -> Known:
        world = self.world
        local = world.locals[number]
        moves = moves_of(world, local)
        numbered = [(world.local(move.target), move) for move in moves]
        left = [pair for pair in numbered if _is_open(pair[1]) or pair[1].target.outbox != local.outbox]
        plain = [pair for pair in numbered if pair not in left]
        safe = [pair for pair in numbered if self.safe and self.safe(local, pair[1], moves)]
        return Known(
            plain=plain,
            open=left,
            view=view(local),
            inside=frozenset(_inside(world, local)),
            closed=local.closed,
            facts=local.facts,
            outbox=local.outbox,
            sent=local.outbox << 1 | local.present,
            end=_end(world, local),
            bad=_bad(world, local),
            rests=_rests(world, local),
            alone=tuple(safe),
            hears=world.forget.hears(local) if world.forget else -1,
        )

    def moves(self) -> list[Move | BossMove]:
        """Every move that was ever looked up."""
        found: list[Move | BossMove] = [move for moves in self._boss.values() for _, move in moves]
        for known in self.known.values():
            found += [move for _, move in (*known.plain, *known.open)]
        return found

    def alone(self, state: State) -> Transition | None:
        """A move that may be explored alone in this state, if there is one."""
        for who in range(self.world.count):
            for target, move in self.known[state[who + 1]].alone:
                found = self._open(state, who, target, move)
                if len(found) == 1 and not found[0].bad and not (move.closes >= 0 and self._near(state, who, move.closes)):
                    return found[0]
        return self._boss_alone(state) if self.safe and self.world.operation else None

    def _boss_alone(self, state: State) -> Transition | None:
        """A move of the coordinator that nothing can prevent: a step, or, where nobody ever withdraws, its only guard."""
        found: list[Transition] = []
        for number, move in self._coordinator(state):
            if move.tag or (move.edges and (self.world.regime != Regime() or not self.world.bold)):
                return None
            found.extend(self._order(state, number, move))
        return found[0] if len(found) == 1 else None

    def all(self, state: State) -> list[Transition]:
        """Every transition that is possible in this state."""
        found: list[Transition] = []
        for number, move in self._coordinator(state) if self.world.operation else ():
            found.extend(self._order(state, number, move))
        for who in range(self.world.count):
            known = self.known[state[who + 1]]
            for target, move in known.plain:
                found.append(Transition(_with(state, who, target), move, who, move.tag, move.bad))
            for target, move in known.open:
                found.extend(self._open(state, who, target, move))
        return found

    def _open(self, state: State, who: int, target: int, move: Move) -> list[Transition]:
        if move.enters:
            return self._enter(state, who, target, move)
        target = self._heard(state[0], target)
        if move.takes >= 0 or move.peers:
            return self._mailed(state, who, target, move)
        if move.cut >= 0:
            closed = any(
                self.known[state[other + 1]].closed >> move.cut & 1 for other in self.world.members[move.cut]
            )
            if closed and self.world.bold and move.harsh:
                raise Interrupted
            return [Transition(_with(state, who, target), move, who)] if closed else []
        if not self._hold(state, move.needs):
            return []
        bad = move.bad
        if move.closes >= 0 and self._in_use(state, who, move.closes):
            bad = tuple(sorted({*bad, "no_use_after_destroy"}))
        if not self._hold(state, move.requires):
            bad = tuple(sorted({*bad, "contracts"}))
        return [Transition(_with(state, who, target), move, who, move.tag, bad)]

    def _heard(self, boss: int, number: int) -> int:
        """A local state without messages at which the coordinator will never look again."""
        if self.world.forget is None:
            return number
        return self._change("heard", number, self.world.forget.asked(boss))

    def heard_mail(self, state: State) -> State:
        """The state without messages to peers that nobody can take any more."""
        known, mail, kept = self.known, state[-1], 0
        for who, message, lane in self._lanes:
            if mail & lane and known[state[who]].hears >> message & 1:
                kept |= mail & lane
        return state if kept == mail else (*state[:-1], kept)

    def _hold(self, state: State, facts: tuple[tuple[str, int], ...]) -> bool:
        return all(
            self.known[state[other + 1]].facts & mask == mask
            for role, mask in facts
            for other in (self.world.where.get(role) or range(self.world.count))
        )

    def _near(self, state: State, who: int, generation: int) -> bool:
        """Whether another member may still use a generation that this engine is about to destroy."""
        world = self.world
        return any(
            other != who
            and not (world.locals[state[other + 1]].switched and generation == OLD)
            and not self.known[state[other + 1]].closed >> generation & 1
            for other in world.members[generation]
        )

    def _in_use(self, state: State, who: int, generation: int) -> bool:
        """Whether another member stands in a collective of a generation, or has it as its active one."""
        joined = self.world.tables.facts.bits.get("active joined", 0)
        for other in self.world.members[generation]:
            known = self.known[state[other + 1]]
            current = self.world.locals[state[other + 1]].switched == bool(generation)
            if other != who and (
                any(place == generation for place, _ in known.inside) or (current and known.facts & joined)
            ):
                return True
        return False

    def _enter(self, state: State, who: int, target: int, move: Move) -> list[Transition]:
        place, step, bad = self._entered(state, who, move)
        after = _with(state, who, target)
        results: list[Transition] = []
        for released_to, outcome in self._release(after, place, step):
            said = self.world.results[outcome.result - 2].answer if outcome else ""
            results.append(Transition(released_to, move, who, outcome.tag if outcome else 0, bad, said))
        return results

    def _entered(self, state: State, who: int, move: Move) -> tuple[Place, StepTable, tuple[str, ...]]:
        """The place a move enters, and what is wrong with entering it now."""
        if move.enters is None:
            raise ValueError("the move enters no collective")
        generation, kind, step = move.enters
        bad = set(move.bad)
        mine = len(self.known[state[who + 1]].view.get((generation, kind), ()))
        for other in self.world.members[generation]:
            known = self.known[state[other + 1]]
            if other == who:
                continue
            theirs = known.view.get((generation, kind), ())
            if len(theirs) > mine and theirs[mine] != step.name:
                bad.add("collective_order")
            if known.closed >> generation & 1 and step.group != "standby":
                bad.add("no_use_after_destroy")
            if (1 - generation, step.name) in known.inside and step.group == "active":
                bad.add("membership")
        if not self._hold(state, move.requires):
            bad.add("contracts")
        return (generation, kind), step, tuple(sorted(bad))

    def _release(self, state: State, place: Place, step: StepTable) -> list[tuple[State, Outcome | None]]:
        """Releases instances of a group as long as every member has entered the oldest one."""
        members = self.world.members[place[0]]
        known = [self.known[state[other + 1]] for other in members]
        oldest = {one.view.get(place, ("",))[0] for one in known}
        if len(oldest) > 1 or "" in oldest or any(one.closed >> place[0] & 1 for one in known):
            return [(state, None)]
        meaning = step if step.name in oldest else None
        found: list[tuple[State, Outcome | None]] = []
        local = [self.world.locals[state[other + 1]] for other in members]
        choices = outcomes(self.world, meaning, local) if meaning else [Outcome(2, 0, False)]
        for outcome in choices:
            after = list(state)
            for other in members:
                after[other + 1] = self._change("release", state[other + 1], place, outcome.result)
            if outcome.void:
                after[-1] = self._void(after[-1], members)
            again = self._release(tuple(after), place, step)
            found.extend((then, later or outcome) for then, later in again)
        return found

    def _void(self, mail: int, members: list[int]) -> int:
        """Wakes to members of a wave that has ended are void."""
        count = self.world.count
        for wake in self.world.tables.wakes:
            for receiver in members:
                mail &= ~(((1 << count) - 1) << ((wake * count + receiver) * count))
        return mail

    def _change(self, what: str, number: int, *how: object) -> int:
        key = (what, number, *how)
        found = self._changed.get(key)
        if found is None:
            found = self._changed[key] = self.world.local(self._changes(what, self.world.locals[number], how))
        return found

    def _changes(self, what: str, local: Local, how: tuple[object, ...]) -> Local:
        if what == "release":
            return released(self.world, local, *how)  # type: ignore[arg-type]
        if what == "order":
            return local._replace(inbox=local.inbox | int(how[0]))  # type: ignore[call-overload]
        if what == "heard":
            return local._replace(outbox=local.outbox & int(how[0]))  # type: ignore[call-overload]
        if what == "take":
            return local._replace(outbox=local.outbox & ~int(how[0]))  # type: ignore[call-overload]
        return local._replace(present=True)

    def _mailed(self, state: State, who: int, target: int, move: Move) -> list[Transition]:
        """Moves that send to all peers of the generation, or take a message from one of them."""
        world, mail = self.world, state[-1]
        count = world.count
        generation = int(world.locals[state[who + 1]].switched)
        for message in move.peers:
            for other in world.members[generation]:
                mail |= (1 << (message * count + other) * count + who) if other != who else 0
        if move.takes < 0:
            return [Transition((*_with(state, who, target)[:-1], mail), move, who, move.tag, move.bad)]
        found = []
        for sender in range(count):
            bit = 1 << (move.takes * count + who) * count + sender
            if state[-1] & bit:
                found.append(
                    Transition((*_with(state, who, target)[:-1], mail & ~bit), move, who, move.tag, move.bad)
                )
        return found

    def _coordinator(self, state: State) -> list[tuple[int, BossMove]]:
        """The moves of the coordinator that are possible: they depend on what the engines have sent, and nothing else."""
        known, number = self.known, state[0]
        key = (number, *[known[other].sent for other in state[1:-1]])
        ready = self._ready.get(key)
        if ready is None:
            world = self.world
            if number not in self._boss:
                moves = boss_moves(world, world.bosses[number])
                self._boss[number] = [(world.boss(move.target), move) for move in moves]
            ready = [pair for pair in self._boss[number] if not pair[1].look or self._arrived(state, pair[1])]
            self._ready[key] = ready
        return ready

    def _order(self, state: State, number: int, move: BossMove) -> list[Transition]:
        after = [number, *(self._heard(number, other) for other in state[1:-1]), state[-1]]
        for role, bits in move.orders:
            for who in self.world.where[role]:
                after[who + 1] = self._change("order", after[who + 1], bits)
        for who in self.world.where.get(move.launches, ()):
            after[who + 1] = self._change("launch", after[who + 1])
        if move.look != "received":
            return [Transition(tuple(after), move, BOSS, move.tag)]
        found = []
        for role, bit in move.sources:
            for who in self.world.where[role]:
                if self.known[state[who + 1]].outbox & bit:
                    taken = self._change("take", after[who + 1], bit)
                    found.append(Transition(_with(tuple(after), who, taken), move, BOSS, move.tag))
        return found

    def _arrived(self, state: State, move: BossMove) -> bool:
        boxes = [
            bool(self.known[state[who + 1]].outbox & bit)
            for role, bit in move.sources
            for who in self.world.where[role]
            if move.look != "all alive" or self.world.locals[state[who + 1]].present
        ]
        return any(boxes) if move.look in ("any", "received") else all(boxes)


def _with(state: State, who: int, target: int) -> State:
    return (*state[: who + 1], target, *state[who + 2 :])


def _is_open(move: Move) -> bool:
    return bool(
        move.enters or move.takes >= 0 or move.peers or move.cut >= 0 or move.needs or move.requires or move.closes >= 0
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
    return {"done": DONE, "aborted": ABORTED}.get(state.name, OTHER_END) if state.end else RUNNING


def _bad(world: World, local: Local) -> tuple[str, ...]:
    """What is wrong with a local state: a machine's invariant, or a step whose required facts went away."""
    missing = 0
    for machine, stand in enumerate(local.stands):
        if stand is None:
            continue
        state = world.state_of(local, machine)
        if state and not state.end:
            missing |= world.machines[local.role][machine].holds & ~local.facts
        step = world.step_of(local, machine)
        if step is not None and stand.inside == ENTERED:
            missing |= step.requires & ~local.facts
    return world.tables.facts.refuted_by(missing)


def _rests(world: World, local: Local) -> bool:
    """Whether this engine may stay as it is for ever: no list is running, and every phase says `within: forever`."""
    for machine, stand in enumerate(local.stands):
        state = world.state_of(local, machine)
        if stand is None or state is None or (world.operation and machine == 0 and state.end):
            continue
        if not state.rests or (state.steps and not ended(state, stand)):
            return False
    return at_boundary(world, local)


__all__ = ["BOSS", "Known", "Stand", "Successors", "Transition"]
