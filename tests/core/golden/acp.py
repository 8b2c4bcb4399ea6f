"""Atomic commitment with crashes, by simple broadcast (blocking) and by reliable broadcast (not blocking).

After Babaoglu and Toueg, "Non-Blocking Atomic Commitment" (in Mullender, Distributed Systems, 1993), as specified in
tlaplus/Examples, specifications/acp: ACP_SB, ACP_NB and ACP_NB_WRONG, with the properties AC1 to AC5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, NamedTuple

from elasticfsm.check.search import Reached

from .model import Model, put, transitions

UNDECIDED, COMMIT, ABORT = "undecided", "commit", "abort"


class Participant(NamedTuple):
    """`forwards`: what it has told each other one; at its own place, what it would decide."""

    vote: str
    alive: bool = True
    decision: str = UNDECIDED
    sent: bool = False
    forwards: tuple[str, ...] = ()


class Coordinator(NamedTuple):
    """For each participant whether it was asked, what it voted and what it was told ("" if not yet)."""

    asked: tuple[bool, ...]
    votes: tuple[str, ...]
    told: tuple[str, ...]
    decision: str = UNDECIDED
    alive: bool = True


class Run(NamedTuple):
    """The whole system."""

    participants: tuple[Participant, ...]
    coordinator: Coordinator

    def with_one(self, place: int, **changes: Any) -> Run:
        """The system after one participant has changed."""
        return self._replace(participants=put(self.participants, place, self.participants[place]._replace(**changes)))

    def with_coordinator(self, **changes: Any) -> Run:
        """The system after the coordinator has changed."""
        return self._replace(coordinator=self.coordinator._replace(**changes))


Step = Callable[[Run, int], Iterator[Run]]


def simple(count: int) -> Model:
    """ACP-SB: who has voted yes may wait for ever when the coordinator dies."""
    return _model(count, 0, _simple)


def reliable(count: int) -> Model:
    """ACP-NB: a decision is forwarded to everybody before it is taken."""
    return _model(count, count, _reliable)


def hasty(count: int) -> Model:
    """ACP-NB made wrong: a decision is taken before it is forwarded."""
    return _model(count, count, _hasty)


def _model(count: int, forwards: int, step: Step) -> Model:
    def initial() -> Iterator[Run]:
        for votes in product(("yes", "no"), repeat=count):
            ones = tuple(Participant(vote, forwards=("",) * forwards) for vote in votes)
            yield Run(ones, Coordinator((False,) * count, ("",) * count, ("",) * count))

    def progress(state: Run) -> Iterator[Run]:
        yield from _coordinate(state)
        for place, one in enumerate(state.participants):
            if one.alive:
                yield from step(state, place)

    def successors(state: Run) -> Iterator[Run]:
        yield from progress(state)
        for place, one in enumerate(state.participants):
            if one.alive:
                yield state.with_one(place, alive=False)
        if state.coordinator.alive:
            yield state.with_coordinator(alive=False)

    return Model(initial, successors, progress=progress)


def _coordinate(state: Run) -> Iterator[Run]:
    boss = state.coordinator
    if not boss.alive:
        return
    undecided = boss.decision == UNDECIDED
    for place, one in enumerate(state.participants):
        if not boss.asked[place]:
            yield state.with_coordinator(asked=put(boss.asked, place, True))
        if undecided and all(boss.asked) and not boss.votes[place]:
            if one.sent:
                yield state.with_coordinator(votes=put(boss.votes, place, one.vote))
            elif not one.alive:
                yield state.with_coordinator(decision=ABORT)
        if not undecided and not boss.told[place]:
            yield state.with_coordinator(told=put(boss.told, place, boss.decision))
    if undecided and all(boss.votes):
        yield state.with_coordinator(decision=COMMIT if set(boss.votes) == {"yes"} else ABORT)


def _vote(state: Run, place: int) -> Iterator[Run]:
    one, boss = state.participants[place], state.coordinator
    if boss.asked[place] and not one.sent:
        yield state.with_one(place, sent=True)
    if one.decision == UNDECIDED and one.sent and one.vote == "no":
        yield state.with_one(place, decision=ABORT)
    if one.decision == UNDECIDED and not boss.alive and not boss.asked[place]:
        yield state.with_one(place, decision=ABORT)


def _simple(state: Run, place: int) -> Iterator[Run]:
    yield from _vote(state, place)
    told = state.coordinator.told[place]
    if told and state.participants[place].decision == UNDECIDED:
        yield state.with_one(place, decision=told)


def _reliable(state: Run, place: int) -> Iterator[Run]:
    one, told = state.participants[place], state.coordinator.told[place]
    yield from _vote(state, place)
    mine = one.forwards[place]
    for other, peer in enumerate(state.participants):
        if mine and not one.forwards[other]:
            yield state.with_one(place, forwards=put(one.forwards, other, mine))
        if not mine and other != place and peer.forwards[place]:
            yield state.with_one(place, forwards=put(one.forwards, place, peer.forwards[place]))
    if not mine and told:
        yield state.with_one(place, forwards=put(one.forwards, place, told))
    if all(one.forwards) and one.decision != mine:
        yield state.with_one(place, decision=mine)
    yield from _time_out(state, place)


def _hasty(state: Run, place: int) -> Iterator[Run]:
    one = state.participants[place]
    yield from _simple(state, place)
    for other, peer in enumerate(state.participants):
        if other != place and one.decision != UNDECIDED and not one.forwards[other]:
            yield state.with_one(place, forwards=put(one.forwards, other, one.decision))
        if other != place and one.decision == UNDECIDED and peer.forwards[place]:
            yield state.with_one(place, decision=peer.forwards[place])
    yield from _time_out(state, place)


def _time_out(state: Run, place: int) -> Iterator[Run]:
    """The coordinator is dead, and nobody alive can still hear of a decision."""
    ones, boss = state.participants, state.coordinator
    alive = [other for other, one in enumerate(ones) if one.alive]
    if boss.alive or ones[place].decision != UNDECIDED or any(boss.told[other] for other in alive):
        return
    if not any(one.forwards[other] for one in ones if not one.alive for other in alive):
        yield state.with_one(place, decision=ABORT)


def violated(model: Model, reached: Reached[Run]) -> set[str]:
    """Which of AC1 to AC5 do not hold."""
    found = {name for state in reached.states for name in _wrong(state)}
    if any(_undone(before, after) for before, after in transitions(reached)):
        found.add("AC4")
    progress = model.progress or model.successors
    if any(_waits(state) and not _moves(state, progress) for state in reached.states):
        found.add("AC5")
    return found


def _wrong(state: Run) -> Iterator[str]:
    decisions = {one.decision for one in state.participants}
    if {COMMIT, ABORT} <= decisions:
        yield "AC1"
    if COMMIT in decisions and any(one.vote == "no" for one in state.participants):
        yield "AC2"
    faulty = not state.coordinator.alive or any(not one.alive for one in state.participants)
    if ABORT in decisions and not faulty and all(one.vote == "yes" for one in state.participants):
        yield "AC3"


def _undone(before: Run, after: Run) -> bool:
    pairs = zip(before.participants, after.participants, strict=True)
    return any(one.decision not in (UNDECIDED, then.decision) for one, then in pairs)


def _waits(state: Run) -> bool:
    return any(one.alive and one.decision == UNDECIDED for one in state.participants)


def _moves(state: Run, progress: Callable[[Run], Iterable[Run]]) -> bool:
    """Whether anybody can go on without a crash. All moves only add, so a fair run ends where nobody can."""
    return any(after != state for after in progress(state))
