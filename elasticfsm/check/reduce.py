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

from collections.abc import Callable
from itertools import groupby, permutations

from elasticfsm.check.meanwhile import Meanwhile, needs_mail, possible
from elasticfsm.check.move import Move
from elasticfsm.check.rank import Ranks
from elasticfsm.check.tables import MachineTable, StateTable, StepTable
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
        self._meanwhile = Meanwhile(world)
        machines = [machine for inside in world.tables.machines.values() for machine in inside]
        ways = [way for machine in machines for state in machine.states for way in state.leave]
        self.shy = any(way.kind == "unwanted" for way in ways)  # whether somebody looks for the absence of votes
        self.endless = [[_endless(machine) for machine in inside] for inside in world.machines]
        self.held = world.suspends  # facts that must hold, or be gone, in some state whatever step comes next
        self.checked = 0  # facts that others must have at some step
        for machine in machines:
            self.held |= machine.holds
        for step in world.tables.steps():
            for _, mask in step.requires_elsewhere:
                self.checked |= mask

    def __call__(self, local: Local, move: Move, moves: list[Move]) -> bool:
        """Whether this move, one of all `moves` of this engine, may be explored alone."""
        world = self.world
        worker = world.machines[local.role][move.machine].worker
        if move.bad or move.tag or world.regime.faults or move.verb == "fail":
            return False
        stand = local.stands[move.machine]
        if stand is not None and stand.state in self.endless[local.role][move.machine]:
            return False
        if move.verb == "guard":
            return self._handed(local, move, moves) if worker else self._quiet(local, move) or self._prompt(local, move)
        step = world.step_of(local, move.machine)
        return step is not None and self._undisturbed(local, move, step)

    def _undisturbed(self, local: Local, move: Move, step: StepTable) -> bool:
        """Whether a step runs to its end whatever others do, and changes nothing that they look at."""
        stand, state = local.stands[move.machine], self.world.state_of(local, move.machine)
        if stand is None or state is None or (step.means == "local" and len(step.answers) > 1):
            return False
        if state.thread == "foreground" and not begun(stand) and not self._at_once(local, move.machine, state):
            return False
        if step.means == "rename" or move.needs or move.lacks or move.requires or self._looked_at(step):
            return False
        if (step.closes and not self._departs(local, step)) or (move.edges and not self._quiet_edges(local, move)):
            return False
        if self._interruptible(local, move.machine, state, step, stand) or self._still_there(local, move, step):
            return False
        return not any(_conflict(step, other) for other in self._meanwhile.steps(local, move.machine))

    def _still_there(self, local: Local, move: Move, step: StepTable) -> bool:
        """Whether leaving a collective may hide from who destroys a generation that it is in use (`_in_use`)."""
        joined = self.world.tables.facts.bits.get("active joined", 0)
        here = step.group == "standby" or (step.group == "active" and bool(local.facts & joined))
        return move.verb == "leave" and bool(step.group) and not here

    def _looked_at(self, step: StepTable) -> bool:
        """Whether others may notice a fact that the step changes, beyond those that it makes possible.

        If a fact ends that others may ask for, that depends on where they stand (`Successors.single`).
        """
        return bool(step.ends & self.held or step.provides & self.checked)

    def _at_once(self, local: Local, machine: int, state: StateTable) -> bool:
        """Whether a foreground list is one local step, and nothing of this engine can keep it waiting or prevent it."""
        return len(state.steps) == 1 and state.steps[0].means == "local" and self._comes(local, machine, state)

    def _comes(self, local: Local, machine: int, state: StateTable) -> bool:
        """Whether a state ends by its list only, and no other list can begin in the main loop before."""
        return not self._heard(local, machine, state) and not self._meanwhile.waits(local, machine)

    def _heard(self, local: Local, machine: int, state: StateTable) -> int:
        """How many guards of the state a message may satisfy."""
        mail = self._mail(local, machine)
        return sum(needs_mail(way) and possible(way, mail) for way in state.leave)

    def _mail(self, local: Local, machine: int) -> int:
        """The messages that may be there while this machine stands still."""
        mail = self._meanwhile.reach(local, machine)[1]
        if self.world.bold and not self.world.regime.cancel:
            mail &= ~self.world.tables.interrupts  # nothing is withdrawn; else `Interrupted` is raised
        return mail

    def _departs(self, local: Local, step: StepTable) -> bool:
        """Whether destroying a group takes nothing from a peer that it could still have.

        A retired one: if no other member can use it any more, which depends on the others (`Successors.single`). A
        standby one: if everything that this engine entered there was released. What a peer entered beyond that can
        never be released then, before the end of the group as little as after it: that end only lets the peer know.
        """
        if step.group == "standby":
            generation = self.world.tables.resolve(self.world.tables.roles[local.role], local.switched, "standby")
            return all(entry.generation != generation for entry in local.pending)
        return step.group == "retired"

    def _handed(self, local: Local, move: Move, moves: list[Move]) -> bool:
        """Whether a worker's guard is the only one that it can ever take where it stands now."""
        table = self.world.machines[local.role][move.machine]
        if move.peers or sum(other.machine == move.machine for other in moves) != 1:
            return False
        _, mail = self._meanwhile.reach(local, move.machine)
        stand = local.stands[move.machine]
        if stand is None:
            return sum(bit & mail != 0 for bits, _, _, _ in table.starts for bit in bits) == 1
        then = self.world.state_of(move.target, move.machine)
        if then is not None and then.inbox & local.inbox:
            return False
        ways = table.states[stand.state].leave
        if _concludes(move):
            return not any(needs_mail(way) and possible(way, mail) for way in ways)
        return sum(way.kind != "expired" and possible(way, mail) for way in ways) == 1

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
        if stand is None:
            mail = self._mail(local, move.machine)
            return sum(bit & mail != 0 for bits, _, _, _ in table.starts for bit in bits) == 1 and _unseen(then)
        state = table.states[stand.state]
        steps = table.serving and then.serves and not then.votes  # its own forward steps are held up by others only
        if not ended(state, stand) or not _unseen(state) or not (steps or _unseen(then)):
            return False
        heard = self._heard(local, move.machine, state)
        concluded = any(way.kind in ("done", "answer") for way in state.leave)
        return heard == 0 if _concludes(move) else heard == 1 and not concluded

    def _prompt(self, local: Local, move: Move) -> bool:
        """Whether a guard that ends a foreground list is taken whatever others do, and only makes more possible.

        It is the only one that this machine can ever take here, and no list can begin in the main loop before it. What
        it sends is not in flight yet, so nobody can take it before, and nobody looks for its absence.
        """
        world = self.world
        table, stand = world.machines[local.role][move.machine], local.stands[move.machine]
        then = world.state_of(move.target, move.machine)
        if stand is None or then is None or then.end or move.takes >= 0 or move.peers or self.shy:
            return False
        state = table.states[stand.state]
        if state.thread != "foreground" or not ended(state, stand) or state.votes or not _concludes(move):
            return False
        sent = then.inbox & local.inbox or then.outbox & local.outbox
        return not sent and self._comes(local, move.machine, state)

    def _interruptible(self, local: Local, machine: int, state: StateTable, step: StepTable, stand: Stand) -> bool:
        """Whether a message may cancel the list, or a peer may close its side of the group."""
        if self.world.bold and not self.world.regime.cancel:
            return False  # then nothing is withdrawn; `Interrupted` is raised if that turns out to be wrong
        mail = self._meanwhile.reach(local, machine)[1]
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


def _concludes(move: Move) -> bool:
    """Whether a guard says how a list ended: it is then the only one of its kind."""
    return move.edges[0][2].split()[0] in ("done", "answer", "failed")


def _unseen(state: StateTable) -> bool:
    """Whether the main loop runs alike with a machine in this state or without."""
    return state.thread != "foreground" and state.serves and not state.votes


def _conflict(step: StepTable, other: StepTable) -> bool:
    """Whether the order of two steps of one engine may matter."""
    reads, writes = (step.requires | step.awaits | step.asks), (step.provides | step.ends)
    theirs = other.requires | other.awaits | other.asks
    changed = other.provides | other.ends
    if other.means == "rename" or ((other.closes or step.closes) and other.group == step.group):
        return True
    if step.means in (*COLLECTIVE, "wait") and other.means in (*COLLECTIVE, "wait") and step.kind == other.kind:
        return True
    return bool(writes & (theirs | changed) or changed & reads)


def _endless(table: MachineTable) -> frozenset[int]:
    """The states through which a machine can run in a circle that waits for nobody: alone it would do so for ever."""
    ahead = {
        index: {way.target for way in state.leave if way.kind in ("done", "answer")}
        for index, state in enumerate(table.states)
        if all(step.means in ("local", "rename") for step in state.steps)
    }
    while True:
        stuck = {index for index, targets in ahead.items() if not targets & set(ahead)}
        if not stuck:
            return frozenset(ahead)
        ahead = {index: targets for index, targets in ahead.items() if index not in stuck}
