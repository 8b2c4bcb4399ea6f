"""What one engine may do while one of its machines stands still, from its local state alone: an over-approximation."""

from __future__ import annotations

from collections.abc import Iterator

from elasticfsm.check.moves import at_boundary
from elasticfsm.check.tables import MachineTable, StateTable, StepTable, WayTable
from elasticfsm.check.world import Local, World, begun, ended


class Meanwhile:
    """Answers for one world; `bold` assumes that a step fails only if it is one of a standby group (see `reduce`)."""

    def __init__(self, world: World) -> None:
        self._world = world
        mail = world.tables.mail.inbox.items()
        self._orders = sum(bit for (_, sender, _), bit in mail if sender == world.program.coordinator)
        self._reached: dict[tuple[object, ...], tuple[list[set[int]], int]] = {}

    def reach(self, local: Local, machine: int) -> tuple[list[set[int]], int]:
        """The states that the machines may come to while this one stands still, and the messages that may be there."""
        stand, mine = local.stands[machine], self._world.state_of(local, machine)
        listed = mine is not None and stand is not None and mine.thread == "foreground"
        held = listed and mine is not None and stand is not None and begun(stand) and not ended(mine, stand)
        serving = self._world.machines[local.role][machine].serving
        agreed = not serving and not (self.holds(local, machine) and at_boundary(self._world, local))
        places = tuple([None if one is None else one.state for one in local.stands])
        key = (local.role, machine, local.inbox, places, held, agreed)
        found = self._reached.get(key)
        if found is None:
            found = self._reached[key] = self._closure(local, machine, held, agreed)
        return found

    def _closure(self, local: Local, machine: int, held: bool, agreed: bool) -> tuple[list[set[int]], int]:
        tables = self._world.machines[local.role]
        found = [{one.state} if one else set() for one in local.stands]
        moving = [other for other in range(len(tables)) if other != machine and (tables[other].worker or not held)]
        mail = local.inbox | self._orders
        while True:
            before = [len(states) for states in found], mail
            for other in moving:
                for target in _next(tables[other], found[other], mail, self._world.bold, agreed):
                    found[other].add(target)
                    mail |= tables[other].states[target].inbox
            if before == ([len(states) for states in found], mail):
                return found, mail

    def steps(self, local: Local, machine: int) -> Iterator[StepTable]:
        """Every step that other threads of the engine may perform before this machine moves on."""
        for other, states in enumerate(self.reach(local, machine)[0]):
            stand = local.stands[other]
            for index in states:
                state = self._world.machines[local.role][other].states[index]
                if stand is not None and index == stand.state:
                    if other != machine and not ended(state, stand) and self._runs(local, machine, other):
                        yield from state.steps[stand.step :]
                else:
                    yield from state.steps

    def waits(self, local: Local, machine: int) -> bool:
        """Whether this machine, at a boundary, may have to wait because another one begins a foreground list."""
        holds = self.holds(local, machine)
        for other, states in enumerate(self.reach(local, machine)[0]):
            table = self._world.machines[local.role][other]
            if other == machine or table.worker or (table.serving and holds):
                continue
            if any(table.states[index].thread == "foreground" for index in states):
                return True
        return False

    def holds(self, local: Local, machine: int) -> bool:
        """Whether no forward step can begin while this machine stands where it stands."""
        state = self._world.state_of(local, machine)
        return state is not None and (state.thread == "foreground" or not state.serves)

    def _runs(self, local: Local, machine: int, other: int) -> bool:
        """Whether the current list of `other` may go on while `machine` stands still."""
        mine, theirs = (self._world.state_of(local, one) for one in (machine, other))
        held = mine is not None and mine.thread == "foreground"
        return not (held and theirs is not None and theirs.thread == "foreground")


def _next(table: MachineTable, states: set[int], mail: int, bold: bool, agreed: bool) -> set[int]:
    """The states that may follow; `agreed`: the engine may meanwhile read a result of the votes."""

    def fails(state: StateTable) -> bool:
        return not bold or any(step.group == "standby" for step in state.steps)

    found = {target for bits, peer, target, _ in table.starts if peer >= 0 or any(bit & mail for bit in bits)}
    for state in (table.states[index] for index in states):
        for way in state.leave:
            excluded = (way.kind == "agreed" and not agreed) or (way.kind == "failed" and not fails(state))
            if not excluded and possible(way, mail):
                found.add(way.target)
    return found


def needs_mail(way: WayTable) -> bool:
    """Whether a guard waits for something that comes from outside the machine."""
    return way.kind not in ("done", "failed", "answer", "expired", "agreed")


def possible(way: WayTable, mail: int) -> bool:
    """Whether a guard may become true with these messages in the engine's mail."""
    if way.kind not in ("received", "any", "all", "all alive"):
        return True
    return bool(way.outside) or way.peer >= 0 or any(bit & mail for bit in way.mail)
