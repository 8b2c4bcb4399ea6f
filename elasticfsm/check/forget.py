"""What can never matter again is forgotten: messages that nobody will look at, facts that no step will ask for.

A local state that differs from another one only in such things behaves alike (the two are bisimilar), so one stands for
both. What a machine may still look at follows from its own diagram: the states that it can reach by any guard.
"""

from __future__ import annotations

from functools import cache

from elasticfsm.check.alike import alike
from elasticfsm.check.faults import restarts
from elasticfsm.check.tables import MachineTable, StateTable
from elasticfsm.check.world import ANSWERED, RELEASED, Boss, Local, World

GROUP_FACTS = ("active ", "standby ", "retired ")


class Forget:
    """Removes from local states what cannot matter any more."""

    def __init__(self, world: World) -> None:
        self.world = world
        facts = world.tables.facts
        self.group_facts = sum(bit for name, bit in facts.bits.items() if name.startswith(GROUP_FACTS))
        self.watched = world.tables.elsewhere | world.suspends
        if world.regime.faults:  # whoever has joined is in doubt until it knows the decision (`moves.in_doubt`)
            self.watched |= facts.bits.get("standby joined", 0)
        for leaks in world.tables.leaks.values():
            self.watched |= leaks["done"] | leaks["aborted"]
        self.once = self._once()
        self.alike = [[alike(machine) for machine in machines] for machines in world.machines]
        self._kept: dict[tuple[int, tuple[int, ...]], tuple[int, int]] = {}
        self._asked: dict[int, int] = {}

    def local(self, local: Local) -> Local:
        """The local state of an engine without messages, facts and names of states that cannot matter any more."""
        same = self.alike[local.role]
        for machine, stand in enumerate(local.stands):
            if stand is not None and same[machine][stand.state] != stand.state:
                stands = list(local.stands)
                stands[machine] = stand._replace(state=same[machine][stand.state])
                local = local._replace(stands=tuple(stands))
        places = tuple(-1 if stand is None else stand.state for stand in local.stands)
        kept = (0, -1) if local.dead else self._kept.get((local.role, places))
        if kept is None:
            kept = self._kept[local.role, places] = self._keep(local)
        mail, facts = kept
        return local._replace(inbox=local.inbox & mail, facts=local.facts & facts)

    def _keep(self, local: Local) -> tuple[int, int]:
        machines = self.world.machines[local.role]
        mail, facts, renames = 0, self.watched, False
        for number, (machine, stand) in enumerate(zip(machines, local.stands, strict=True)):
            operation = self.world.operation and number == 0
            starts = () if operation and stand is not None else tuple(target for _, _, target, _ in machine.starts)
            reach = reachable(machine, (*starts, *((stand.state,) if stand else ())))
            for bits, _, _, _ in machine.starts if starts else ():
                mail |= sum(bits)
            facts |= machine.holds
            for state in (machine.states[index] for index in reach):
                for way in state.leave:
                    for bit in way.mail:
                        mail |= bit
                facts |= _asked(state)
                renames = renames or any(step.means == "rename" for step in state.steps)
        return mail, facts | (self.group_facts if renames else 0)

    def hears(self, local: Local) -> int:
        """The peer messages that this engine may still take: inside a wave a wake is void before it could be."""
        mask = 0
        for machine, stand in zip(self.world.machines[local.role], local.stands, strict=True):
            starts = [stand.state] if stand else [target for _, _, target, _ in machine.starts]
            if stand is not None and (stand.inside >= RELEASED or stand.outcome >= ANSWERED):
                starts += [way.target for way in machine.states[stand.state].leave]
            for index in self._within_wave(machine, tuple(starts)):
                for way in machine.states[index].leave:
                    mask |= 1 << way.peer if way.peer >= 0 else 0
        return mask

    def wanted(self, local: Local) -> int:
        """The facts of other engines that steps of this engine may still ask for."""
        mask = 0
        for number, (machine, stand) in enumerate(zip(self.world.machines[local.role], local.stands, strict=True)):
            again = stand is None or not (self.world.operation and number == 0)
            starts = [target for _, _, target, _ in machine.starts] if again else []
            for index in reachable(machine, (*starts, *((stand.state,) if stand else ()))):
                for step in machine.states[index].steps:
                    for _, asked in (*step.awaits_elsewhere, *step.requires_elsewhere):
                        mask |= asked
        return mask

    def _once(self) -> int:
        """The peer messages of which one is as good as many: whoever took one hears no other of them in this wave."""
        once, again = 0, 0
        for machine in (machine for machines in self.world.machines for machine in machines):
            for way in (way for state in machine.states for way in state.leave if way.peer >= 0):
                after = self._within_wave(machine, (way.target,))
                heard = any(other.peer == way.peer for index in after for other in machine.states[index].leave)
                once, again = once | 1 << way.peer, again | heard << way.peer
            for _, peer, _, _ in machine.starts:
                again |= 1 << peer if peer >= 0 else 0
        return once & ~again

    def _within_wave(self, machine: MachineTable, starts: tuple[int, ...]) -> set[int]:
        """The states that a machine can reach before the wave ends."""
        seen, queue = set(starts), list(starts)
        while queue:
            for way in machine.states[queue.pop()].leave:
                over = way.kind == "answer" and way.name in self.world.tables.wave_ends
                if not over and way.target not in seen:
                    seen.add(way.target)
                    queue.append(way.target)
        return seen

    def boss(self, boss: Boss) -> Boss:
        """The coordinator's state; whether a cancel was taken is forgotten where none can be taken any more."""
        table = self.world.tables.coordinator
        if table is None or boss.stand is None:
            return boss
        states = reachable(table, (boss.stand.state,))
        open_ = any(way.outside == "operator" for index in states for way in table.states[index].leave)
        return boss if open_ else boss._replace(cancelled=True)

    def asked(self, number: int) -> int:
        """The outbox bits of engines at which the coordinator may still look."""
        found = self._asked.get(number)
        if found is None:
            table, boss = self.world.tables.coordinator, self.world.bosses[number]
            found = 0
            starts = (boss.stand.state,) if boss.stand else ()
            again = restarts(self.world).values() if self.world.regime.restart else ()
            for index in reachable(table, (*starts, *again)) if table else ():
                for way in table.states[index].leave if table else ():
                    for _, bit in way.sources:
                        found |= bit
            self._asked[number] = found
        return found


def reachable(machine: MachineTable, starts: tuple[int, ...]) -> frozenset[int]:
    """The states that a machine can reach from some, by any guard."""
    return _reachable(machine.name, machine.states, starts)


@cache
def _reachable(name: str, states: tuple[StateTable, ...], starts: tuple[int, ...]) -> frozenset[int]:
    seen = set(starts)
    queue = list(starts)
    while queue:
        for way in states[queue.pop()].leave:
            if way.target not in seen:
                seen.add(way.target)
                queue.append(way.target)
    return frozenset(seen)


def _asked(state: StateTable) -> int:
    mask = 0
    for step in state.steps:
        mask |= step.requires | step.awaits | step.asks
    return mask
