"""What an engine may still say to the coordinator: so that a guard of the coordinator can be known to stay false."""

from __future__ import annotations

from collections.abc import Sequence

from elasticfsm.check.coordinator import BossMove
from elasticfsm.check.meanwhile import possible
from elasticfsm.check.tables import OLD, MachineTable, StateTable
from elasticfsm.check.world import RELEASED, Local, World

EVERY = -1  # all votes


class Future:
    """Answers from the local states of all engines; an over-approximation that ignores which guards exclude each other.

    It assumes what a regime without faults promises: nothing expires, and a step fails only where a peer may have
    closed its side of a standby group.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: dict[tuple[int, tuple[int, ...], int, int], tuple[int, int]] = {}
        inner = {bit for (_, sender, _), bit in world.tables.mail.inbox.items() if sender != world.program.coordinator}
        self._orders = sum(bit for bit in world.tables.mail.inbox.values() if bit not in inner)

    def never(self, moves: Sequence[BossMove], engines: Sequence[tuple[Local, int]]) -> bool:
        """Whether these guards, not true now, stay false whatever the engines (local state, what it sent) do."""
        says = self._may_say(engines)
        return all(self._stays_false(move, engines, says) for move in moves)

    def _stays_false(self, move: BossMove, engines: Sequence[tuple[Local, int]], says: list[int]) -> bool:
        for role, bit in move.sources:
            places = self._world.where[role]
            if move.look in ("any", "received"):
                if any(says[who] & bit for who in places):
                    return False
            elif any(not (engines[who][1] | says[who]) & bit for who in places):
                return True
        return move.look in ("any", "received")

    def _may_say(self, engines: Sequence[tuple[Local, int]]) -> list[int]:
        """The outbox bits that each engine may still set; a vote can be full only if every old member may cast it."""
        members = self._world.members[OLD]
        full = EVERY
        for who in members:
            full &= self._reach(engines[who][0], EVERY)[1]
        return [
            self._reach(local, full if who in members and _reads_old_votes(local) else EVERY)[0]
            for who, (local, _) in enumerate(engines)
        ]

    def _reach(self, local: Local, votes: int) -> tuple[int, int]:
        """What the machines of an engine may still send, and may cast now or later, if no other vote can be full."""
        key = (local.role, tuple(-1 if stand is None else stand.state for stand in local.stands), local.inbox, votes)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._closure(local, votes)
        return found

    def _closure(self, local: Local, votes: int) -> tuple[int, int]:
        tables = self._world.machines[local.role]
        now = [{stand.state} if stand else set() for stand in local.stands]
        later: list[set[int]] = [set() for _ in tables]
        mail = local.inbox | self._orders
        names = self._world.tables.votes
        while True:
            before = mail, [len(states) for states in later]
            for number, table in enumerate(tables):
                standing = now[number] | later[number]
                once = number == 0 and self._world.operation
                starts = not (standing if once else now[number]) or (not once and _may_end(table, standing))
                for target in _next(table, standing, mail, votes, names, starts):
                    later[number].add(target)
                    mail |= table.states[target].inbox
            if before == (mail, [len(states) for states in later]):
                break
        sent = cast = 0
        for table, soon, standing in zip(tables, later, now, strict=True):
            for index in soon | standing:
                cast |= table.states[index].votes
            for index in soon:
                sent |= table.states[index].outbox
        return sent, cast


def _reads_old_votes(local: Local) -> bool:
    """Whether the next result of a step that this engine reads is one that all old members still have to contribute."""
    return not local.switched and all(stand is None or stand.inside < RELEASED for stand in local.stands)


def _may_end(table: MachineTable, states: set[int]) -> bool:
    return any(table.states[index].end for index in states)


def _next(
    table: MachineTable, states: set[int], mail: int, votes: int, names: dict[str, int], starts: bool
) -> set[int]:
    """States that may follow; `starts`: a message may start the machine (an operation's own starts only once)."""
    found: set[int] = set()
    if starts:
        found = {target for bits, peer, target, _ in table.starts if peer >= 0 or any(bit & mail for bit in bits)}
    for index in states:
        state = table.states[index]
        for way in state.leave:
            if way.kind == "expired" or not possible(way, mail) or (way.kind == "failed" and not _fails(state)):
                continue
            if way.kind != "agreed" or names[way.name] & votes:
                found.add(way.target)
    return found


def _fails(state: StateTable) -> bool:
    return any(step.group == "standby" and step.means != "local" for step in state.steps)
