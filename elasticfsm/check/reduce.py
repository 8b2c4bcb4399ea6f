"""Two reductions that change no verdict: engines of one role are alike, and some moves may be explored alone.

Symmetry: the engines of a role are sorted by their local states; messages between them move along.

Moves alone (singleton ample sets): a move of an engine may be explored alone if it has one outcome, nobody can
prevent or change it, it changes nothing that a property looks at, and no cycle consists of such moves only. That is so
for steps in the middle of a list (begun lists run to their end), if no other thread of that engine can touch the same
facts, names or groups before; and for guards that the main loop does not notice. Never explored alone: other guards,
the begin of a forward step, a switch, the end of a group, a fact that other engines wait for, and what a message may
still interrupt. The rule keeps branching-time properties (Gerth, Kuiper, Peled, Penczek 1995: singleton or full), and
tests compare it with the unreduced run.

`world.bold` assumes what a regime without cancel promises: nothing is withdrawn, only standby groups are closed. If
that turns out to be wrong, `Interrupted` is raised and the run is repeated without the assumption. (Up to the first
such event both systems are the same, and the reduced one keeps it reachable.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby, permutations

from elasticfsm.check.moves import Move
from elasticfsm.check.rank import Ranks
from elasticfsm.check.tables import MachineTable, StateTable, StepTable, WayTable
from elasticfsm.check.world import OUT, Local, Stand, State, World, begun, ended

COLLECTIVE = ("rendezvous", "agree", "post")


def symmetry(world: World) -> Callable[[State], State]:
    """A function that maps a state to the one that stands for all states that differ only in engines' numbers."""
    blocks: list[tuple[int, int]] = []
    neighbours: list[int] = []
    for role in world.tables.roles:
        places = world.where[role]
        if len(places) > 1:
            blocks.append((places[0] + 1, places[-1] + 2))
            neighbours += range(places[0] + 1, places[-1] + 1)
    if not blocks:
        return lambda state: state
    ranks = Ranks(world)

    def canonical(state: State) -> State:
        for place in neighbours:
            if state[place] != state[place + 1] and ranks[state[place]] > ranks[state[place + 1]]:
                break
        else:
            return _least(state, blocks) if state[-1] else state
        order = list(range(len(state)))
        for start, stop in blocks:
            order[start:stop] = sorted(order[start:stop], key=lambda place: ranks[state[place]])
        moved = [state[place] for place in order]
        if state[-1]:
            moved[-1] = _permuted(state[-1], [place - 1 for place in order[1:-1]])
            return _least(tuple(moved), blocks)
        return tuple(moved)

    return canonical


def _least(state: State, blocks: list[tuple[int, int]]) -> State:
    """Engines that stand alike may differ in their messages: of all their orders the one with the least number."""
    alike = [
        tuple(group)
        for start, stop in blocks
        for _, group in groupby(range(start, stop), key=lambda place: state[place])
    ]
    if all(len(group) == 1 for group in alike):
        return state
    orders = [list(range(len(state) - 2))]
    for group in alike:
        places = [place - 1 for place in group]
        orders = [
            [*order[: places[0]], *swapped, *order[places[-1] + 1 :]]
            for order in orders
            for swapped in permutations(places)
        ]
    return (*state[:-1], min(_permuted(state[-1], order) for order in orders))


def _permuted(mail: int, order: list[int]) -> int:
    """The messages to peers after the engine at `order[new]` moved to `new`."""
    count = len(order)
    new = {old: place for place, old in enumerate(order)}
    moved = 0
    for bit in range(mail.bit_length()):
        if mail >> bit & 1:
            message, rest = divmod(bit, count * count)
            receiver, sender = divmod(rest, count)
            moved |= 1 << ((message * count + new[receiver]) * count + new[sender])
    return moved


class Alone:
    """Decides which moves may be explored alone, from the local state of the engine that moves."""

    def __init__(self, world: World) -> None:
        self.world = world
        steps = [
            step
            for machines in world.tables.machines.values()
            for machine in machines
            for state in machine.states
            for step in state.steps
        ]
        self.watched = 0
        for step in steps:
            for _, mask in (*step.awaits_elsewhere, *step.requires_elsewhere):
                self.watched |= mask
        for machines in world.tables.machines.values():
            for machine in machines:
                self.watched |= machine.holds

    def __call__(self, local: Local, move: Move, moves: list[Move]) -> bool:
        """Whether this move, one of all `moves` of this engine, may be explored alone."""
        world = self.world
        worker = world.machines[local.role][move.machine].worker
        if move.bad or move.tag or world.regime.faults or move.verb == "fail":
            return False
        if move.verb == "guard":
            return self._handed(local, move, moves) if worker else self._quiet(local, move)
        step = world.step_of(local, move.machine)
        return step is not None and self._undisturbed(local, move, step)

    def _undisturbed(self, local: Local, move: Move, step: StepTable) -> bool:
        """Whether a step runs to its end whatever others do, and changes nothing that they look at."""
        stand, state = local.stands[move.machine], self.world.state_of(local, move.machine)
        if stand is None or state is None or (state.thread == "foreground" and not begun(stand)):
            return False
        destroys = step.closes and step.group != "retired"  # a retired one: if no other member can use it any more
        if step.means == "rename" or destroys or step.ends & self.watched or move.needs or move.requires:
            return False
        if self._interruptible(local, move.machine, state, step, stand):
            return False
        if move.edges and not self._quiet_edges(local, move):
            return False
        return not any(_conflict(step, other) for other in self._meanwhile(local, move.machine))

    def _handed(self, local: Local, move: Move, moves: list[Move]) -> bool:
        """Whether a worker's guard is the only one that it can ever take where it stands now."""
        table = self.world.machines[local.role][move.machine]
        if move.peers or sum(other.machine == move.machine for other in moves) != 1:
            return False
        _, mail = self._reach(local, move.machine)
        stand = local.stands[move.machine]
        if stand is None:
            return sum(bit & mail != 0 for bits, _, _, _ in table.starts for bit in bits) == 1
        open_ways = [way for way in table.states[stand.state].leave if way.kind != "expired" and possible(way, mail)]
        return len(open_ways) == 1

    def _quiet(self, local: Local, move: Move) -> bool:
        """Whether a guard changes nothing that the main loop or another machine of the engine looks at.

        It is the only one that this machine can ever take here, and before and after it the machine votes for nothing
        and holds no forward step up. It waits for a boundary, and so a forward step may come first; that changes the
        moment of the guard only: every state in which it is still to come has a twin, explored, in which it came. The
        coordinator hears of it earlier in the twin, not otherwise, and a deadlock stays one.
        """
        world = self.world
        table, stand = world.machines[local.role][move.machine], local.stands[move.machine]
        then = world.state_of(move.target, move.machine)
        if not world.bold or then is None or move.takes >= 0 or move.peers or move.target.inbox & ~local.inbox:
            return False
        mail = self._reach(local, move.machine)[1]
        if not world.regime.cancel:
            mail &= (
                ~world.tables.interrupts
            )  # nothing is withdrawn; `Interrupted` is raised if that turns out to be wrong
        if stand is None:
            only = sum(bit & mail != 0 for bits, _, _, _ in table.starts for bit in bits) == 1
            return only and _unseen(then)
        state = table.states[stand.state]
        if not ended(state, stand) or not _unseen(state) or not _unseen(then):
            return False
        concluded = any(way.kind in ("done", "answer") for way in state.leave)
        heard = sum(_needs_mail(way) and possible(way, mail) for way in state.leave)
        return (
            heard == 0 if move.edges[0][2].split()[0] in ("done", "answer", "failed") else heard == 1 and not concluded
        )

    def _interruptible(self, local: Local, machine: int, state: StateTable, step: StepTable, stand: Stand) -> bool:
        """Whether a message may cancel the list, or a peer may close its side of the group."""
        if self.world.bold and not self.world.regime.cancel:
            return False  # then nothing is withdrawn; `Interrupted` is raised if that turns out to be wrong
        mail = self._reach(local, machine)[1]
        if state.thread == "background" and any(
            way.kind not in ("done", "failed", "answer", "expired") and possible(way, mail) for way in state.leave
        ):
            return True
        return step.means in (*COLLECTIVE, "wait") and step.group == "standby" and stand.inside == OUT

    def _quiet_edges(self, local: Local, move: Move) -> bool:
        """Whether full votes only move machines that run no list, to states that are no end."""
        world = self.world
        for machine, stand in enumerate(local.stands):
            after = move.target.stands[machine]
            if stand == after:
                continue
            state, then = world.state_of(local, machine), world.state_of(move.target, machine)
            if state is None or then is None or then.end:
                return False
            if machine != move.machine and state.thread == "background":
                return False
        return not move.peers

    def _meanwhile(self, local: Local, machine: int) -> Iterator[StepTable]:
        """Every step that other threads of the engine may perform before this machine moves on."""
        for other, states in enumerate(self._reach(local, machine)[0]):
            stand = local.stands[other]
            for index in states:
                state = self.world.machines[local.role][other].states[index]
                if stand is not None and index == stand.state:
                    if other != machine and not ended(state, stand) and self._runs(local, machine, other):
                        yield from state.steps[stand.step :]
                else:
                    yield from state.steps

    def _runs(self, local: Local, machine: int, other: int) -> bool:
        """Whether the current list of `other` may go on while `machine` stands still."""
        mine, theirs = (self.world.state_of(local, one) for one in (machine, other))
        held = mine is not None and mine.thread == "foreground"
        return not (held and theirs is not None and theirs.thread == "foreground")

    def _reach(self, local: Local, machine: int) -> tuple[list[set[int]], int]:
        """What the machines of the engine may reach while this one stands still: their states, and messages to it."""
        world = self.world
        tables = world.machines[local.role]
        mine = world.state_of(local, machine)
        held = mine is not None and mine.thread == "foreground"
        reach = [{stand.state} if stand else set() for stand in local.stands]
        moving = [other for other in range(len(tables)) if other != machine and (tables[other].worker or not held)]
        inner = {bit for (_, sender, _), bit in world.tables.mail.inbox.items() if sender != world.program.coordinator}
        mail = local.inbox | sum(bit for bit in world.tables.mail.inbox.values() if bit not in inner)
        while True:
            before = [len(states) for states in reach], mail
            for other in moving:
                for target in _next(tables[other], reach[other], mail, world.bold):
                    reach[other].add(target)
                    mail |= tables[other].states[target].inbox
            if before == ([len(states) for states in reach], mail):
                return reach, mail


def _needs_mail(way: WayTable) -> bool:
    return way.kind not in ("done", "failed", "answer", "expired", "agreed")


def _unseen(state: StateTable) -> bool:
    """Whether the main loop runs alike with a machine in this state or without."""
    return state.thread != "foreground" and state.serves and not state.votes


def _next(table: MachineTable, states: set[int], mail: int, bold: bool) -> set[int]:
    def fails(state: StateTable) -> bool:
        return not bold or any(step.group == "standby" for step in state.steps)

    found = {target for bits, peer, target, _ in table.starts if peer >= 0 or any(bit & mail for bit in bits)}
    for index in states:
        state = table.states[index]
        found |= {way.target for way in state.leave if possible(way, mail) and (way.kind != "failed" or fails(state))}
    return found


def possible(way: WayTable, mail: int) -> bool:
    """Whether a guard may become true with these messages in the engine's mail."""
    if way.kind not in ("received", "any", "all", "all alive"):
        return True
    return bool(way.outside) or way.peer >= 0 or any(bit & mail for bit in way.mail)


def _conflict(step: StepTable, other: StepTable) -> bool:
    """Whether the order of two steps of one engine may matter."""
    reads, writes = (step.requires | step.awaits | step.asks), (step.provides | step.ends)
    theirs = other.requires | other.awaits | other.asks
    changed = other.provides | other.ends
    if other.means == "rename" or (other.closes and other.group == step.group):
        return True
    if step.means in (*COLLECTIVE, "wait") and other.means in (*COLLECTIVE, "wait") and step.kind == other.kind:
        return True
    return bool(writes & (theirs | changed) or changed & reads)
