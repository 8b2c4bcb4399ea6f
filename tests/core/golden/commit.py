"""Transaction commit, two-phase commit, and two-phase commit with a backup manager.

After tlaplus/Examples, specifications/transaction_commit: TCommit, TwoPhase (Gray and Lamport, "Consensus on
Transaction Commit") and 2PCwithBTM. Orbits: states that differ only in which resource manager is which.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .model import Model, put

WORKING, PREPARED, COMMITTED, ABORTED, FAILED = "working", "prepared", "committed", "aborted", "failed"


class TwoPhase(NamedTuple):
    """`managers`: of each resource manager its state, whether it has said "prepared", and whether that was heard."""

    managers: tuple[tuple[str, bool, bool], ...]
    decision: str = "init"
    said: frozenset[str] = frozenset()


def two_phase(managers: int) -> Model:
    """Two-phase commit, fault-free, with a set of messages that are never taken back."""
    return Model(
        initial=lambda: [TwoPhase(((WORKING, False, False),) * managers)],
        successors=_two_phase,
        canonical=lambda state: state._replace(managers=tuple(sorted(state.managers))),
    )


def _two_phase(state: TwoPhase) -> Iterator[TwoPhase]:
    if state.decision == "init":
        if all(heard for _, _, heard in state.managers):
            yield state._replace(decision=COMMITTED, said=state.said | {COMMITTED})
        yield state._replace(decision=ABORTED, said=state.said | {ABORTED})
    for place, (stands, prepared, heard) in enumerate(state.managers):
        if state.decision == "init" and prepared:
            yield state._replace(managers=put(state.managers, place, (stands, prepared, True)))
        if stands == WORKING:
            yield state._replace(managers=put(state.managers, place, (PREPARED, True, heard)))
            yield state._replace(managers=put(state.managers, place, (ABORTED, prepared, heard)))
        for decision in state.said:
            yield state._replace(managers=put(state.managers, place, (decision, prepared, heard)))


def consistent(stands: tuple[str, ...]) -> bool:
    """No manager has committed while another one has aborted."""
    return not {COMMITTED, ABORTED} <= set(stands)


def transaction_commit(managers: int) -> Model:
    """What a commit protocol implements: managers that look at each other."""
    return Model(initial=lambda: [(WORKING,) * managers], successors=_transaction_commit)


def _transaction_commit(state: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for place, stands in enumerate(state):
        if stands == WORKING:
            yield put(state, place, PREPARED)
        if stands == PREPARED and set(state) <= {PREPARED, COMMITTED}:
            yield put(state, place, COMMITTED)
        if stands in (WORKING, PREPARED) and COMMITTED not in state:
            yield put(state, place, ABORTED)


class Backed(NamedTuple):
    """`at`: the next line of each resource manager, of the transaction manager and of its backup."""

    managers: tuple[str, ...]
    decision: str
    at: tuple[str, ...]


def backed_up(managers: int) -> Model:
    """Two-phase commit over shared state; one resource manager and the transaction manager may fail."""
    lines = ("loop",) * managers + ("wait", "wait")
    return Model(initial=lambda: [Backed((WORKING,) * managers, "init", lines)], successors=_backed_up)


def _backed_up(state: Backed) -> Iterator[Backed]:
    managers, decision, at = state
    count = len(managers)
    for place, stands in enumerate(managers):
        if at[place] == "loop" and stands in (WORKING, PREPARED):
            yield from (state._replace(managers=put(managers, place, then)) for then in _manager(state, stands))
        elif at[place] == "loop":
            yield state._replace(at=put(at, place, "done"))
    can_commit = set(managers) == {PREPARED} or COMMITTED in managers
    can_abort = bool({ABORTED, FAILED} & set(managers)) and COMMITTED not in managers
    for place, allowed in ((count, True), (count + 1, decision == "hidden")):
        if at[place] == "wait" and allowed:
            for possible, line in ((can_commit, COMMITTED), (can_abort, ABORTED)):
                if possible:
                    yield state._replace(at=put(at, place, line))
        elif at[place] in (COMMITTED, ABORTED):
            after = f"fail {at[place]}" if place == count else "done"
            yield state._replace(decision=at[place], at=put(at, place, after))
        elif at[place].startswith("fail"):
            yield state._replace(decision="hidden", at=put(at, place, "done"))


def _manager(state: Backed, stands: str) -> Iterator[str]:
    """What a running resource manager may become."""
    if stands == WORKING:
        yield PREPARED
    if state.decision == COMMITTED:
        yield COMMITTED
    if stands == WORKING or state.decision == ABORTED:
        yield ABORTED
    yield stands if FAILED in state.managers else FAILED
