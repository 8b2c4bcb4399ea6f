"""What the environment does to a system beyond its own steps: deaths, a restart, lost and repeated messages.

All of it works on transitions and local states alone, so it knows no protocol. A message is lost at the moment at which
it is sent (one that is lost later was seen by nobody either), and repeated at the moment at which it is taken. A death
leaves behind what the engine had sent and what it had contributed to collectives: these may still complete, and then
return at one member and fail at another. Messages inside an engine are memory: never lost, never repeated.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from elasticfsm.check.collectives import buried
from elasticfsm.check.coordinator import BossMove, decides
from elasticfsm.check.doubt import joined
from elasticfsm.check.move import FAULT, Move
from elasticfsm.check.tables import NEW, OLD
from elasticfsm.check.transition import BOSS, Transition
from elasticfsm.check.world import ABORTED, CRASH, DONE, DUPLICATE, LOSS, RUNNING, Boss, Local, Stand, State, World
from elasticfsm.errors import SpecError

if TYPE_CHECKING:
    from elasticfsm.check.successors import Successors

OUTSIDE = 256  # bits of an outbox are shifted by this where both boxes of an engine are spoken of
WORDS = (1 << OUTSIDE) - 1
WATCHDOG = ("died", "lost")  # messages that no engine sends itself


class Faults:
    """Adds to the transitions of a state those in which something goes wrong, as long as the budgets last.

    Numbers of local states are only changed by `Successors.change` and `turn`, so that the vectorised explorer can note
    what was looked at.
    """

    def __init__(self, successors: Successors) -> None:
        world = successors.world
        self._successors = successors
        tables = world.tables
        boss = world.program.coordinator
        self._orders = sum(bit for (_, sender, _), bit in tables.mail.inbox.items() if sender == boss != "")
        self._died = sum(bit for (message, _), bit in tables.mail.outbox.items() if message in WATCHDOG)
        self._restart = restarts(world)
        if world.regime.restart and not self._restart:
            raise SpecError(
                f"{world.program.name}: its coordinator cannot be restarted; expected `restarted: STATE` among its "
                "starts, or a phase `asking`"
            )

    @property
    def world(self) -> World:
        """The world, in the vectorised explorer one that notes what is looked at."""
        return self._successors.world

    def more(self, state: State, found: list[Transition]) -> list[Transition]:
        """All transitions of a state: those found, without the ones that no budget allows, and those with a fault."""
        return [*self.around(state, found), *self.beyond(state)]

    def around(self, state: State, found: list[Transition]) -> list[Transition]:
        """These transitions, and what may go wrong in them; looks at the coordinator and at what they change."""
        told: list[Transition] = []
        for transition in found:
            paid = self._paid(transition)
            if paid is None:
                continue
            told.append(paid)
            told.extend(self._lost(state, paid, 0))
            told.extend(self._doubled(state, paid))
            told.extend(self._half_sent(state, paid))
        return told

    def beyond(self, state: State) -> list[Transition]:
        """What happens to a system without its doing: deaths, a restart."""
        told = list(self._deaths(state))
        if self.world.regime.restart and self.world.bosses[state[0]].down:
            told.append(self._restarted(state))
        return told

    def _half_sent(self, state: State, sent: Transition) -> Iterator[Transition]:
        """The same transition when its sender dies in the middle of sending: some messages are out, some are not."""
        target = sent.target
        if not self._left(target[0], CRASH) or over(self.world, state):
            return
        out = list(self._messages(state, target))
        if len(out) < 2:
            return
        died = self._died_sending(state, sent)
        for chosen in range(1, (1 << len(out)) - 1):
            moved = died
            for index, (place, _, said) in enumerate(out):
                if not chosen >> index & 1:
                    moved = (*moved[:place], self._without(moved[place], said, place), *moved[place + 1 :])
            told = f"{sent.said}, and dies before all its messages are out"
            yield sent._replace(target=moved, tag=sent.tag | FAULT, said=told)

    def _died_sending(self, state: State, sent: Transition) -> State:
        target, who = sent.target, sent.who
        turn, change = self._successors.turn, self._successors.change
        if who == BOSS:
            return (turn("dies", target[0]), *target[1:])
        local = self.world.locals[target[who + 1]]
        spent = turn("spend", target[0], CRASH, mourned(self.world, local, self.world.bosses[state[0]]))
        return (spent, *target[1 : who + 1], change("dies", target[who + 1]), *target[who + 2 :])

    def _left(self, number: int, kind: int) -> bool:
        allowed = self.world.regime.budgets[kind]
        return allowed > 0 and self.world.bosses[number].spent[kind] < allowed

    def _paid(self, transition: Transition) -> Transition | None:
        kind = transition.move.cost
        if kind < 0:
            return transition
        target = transition.target
        if not self._left(target[0], kind):
            return None
        return transition._replace(target=(self._successors.turn("spend", target[0], kind, False), *target[1:]))

    def _lost(self, state: State, sent: Transition, after: int) -> Iterator[Transition]:
        """The same transition with one message that it sends lost; with a greater budget, with several."""
        target = sent.target
        if not self._left(target[0], LOSS):
            return
        for place, one, said in self._messages(state, target):
            if one < after:
                continue
            spent = self._successors.turn("spend", target[0], LOSS, False)
            moved = (spent, *target[1:place], self._without(target[place], said, place), *target[place + 1 :])
            lost = sent._replace(target=moved, tag=sent.tag | FAULT, said=f"{sent.said}, a message is lost")
            yield lost
            yield from self._lost(state, lost, one + 1)

    def _messages(self, state: State, target: State) -> Iterator[tuple[int, int, int]]:
        """Every message on the wire that the target has and the state has not: place, a running number, its bit."""
        one = 0
        last = len(state) - 1
        for place in range(1, last):
            if state[place] is target[place]:
                continue
            before, then = self.world.locals[state[place]], self.world.locals[target[place]]
            if before.dead or then.dead:
                continue
            orders, words = self._orders, ~self._died & WORDS
            for new in (
                int(then.inbox & orders) & ~int(before.inbox & orders),
                (int(then.outbox & words) & ~int(before.outbox & words)) << OUTSIDE,
            ):
                for bit in _bits(new):
                    yield place, one, bit
                    one += 1
        if state[last] is not target[last]:
            for bit in _bits(int(target[last]) & ~int(state[last])):
                yield last, one, bit
                one += 1

    def _without(self, number: int, bit: int, place: int) -> int:
        if place > self.world.count:
            return number & ~bit
        return self._successors.change("without", number, bit & WORDS, bit >> OUTSIDE)

    def _doubled(self, state: State, taken: Transition) -> Iterator[Transition]:
        """The same transition with a message that it takes still in flight."""
        target = taken.target
        if not self._left(target[0], DUPLICATE):
            return
        spent = self._successors.turn("spend", target[0], DUPLICATE, False)
        for place, again in self._taken(state, taken):
            moved = (spent, *target[1:place], again, *target[place + 1 :])
            yield taken._replace(target=moved, tag=taken.tag | FAULT, said=f"{taken.said}, and the message comes again")

    def _taken(self, state: State, transition: Transition) -> Iterator[tuple[int, int]]:
        last, target, orders = len(state) - 1, transition.target, self._orders
        for place in range(1, last):
            if state[place] is not target[place]:
                before, then = self.world.locals[state[place]], self.world.locals[target[place]]
                for bit in _bits(int(before.inbox & orders) & ~int(then.inbox & orders)):
                    yield place, self._successors.change("order", target[place], bit)
        if isinstance(transition.move, Move) and transition.move.takes >= 0:
            for bit in _bits(int(state[last]) & ~int(target[last])):
                yield last, target[last] | bit

    def _deaths(self, state: State) -> Iterator[Transition]:
        world, turn = self.world, self._successors.turn
        if not self._left(state[0], CRASH) or over(world, state):
            return
        boss = world.bosses[state[0]]
        if world.operation and boss.stand is not None:
            yield Transition((turn("dies", state[0]), *state[1:]), DEATH, BOSS, FAULT)
        for who in range(world.count):
            local = world.locals[state[who + 1]]
            if local.present:
                spent = turn("spend", state[0], CRASH, mourned(world, local, boss))
                dead = self._successors.change("dies", state[who + 1])
                yield Transition((spent, *state[1 : who + 1], dead, *state[who + 2 :]), DEATH, who, FAULT)

    def _restarted(self, state: State) -> Transition:
        """It begins where its diagram says, with its journal; engines say again all that they said to the old one."""
        world, change = self.world, self._successors.change
        journal = int(world.bosses[state[0]].journal)
        begins = self._restart[journal if journal in self._restart else 0]
        table = world.tables.coordinator
        orders = table.states[begins].orders if table else ()
        boss = self._successors.turn("restarts", state[0], begins)
        after = [boss, *state[1:]]
        for role, bits in orders:
            for who in world.where[role]:
                after[who + 1] = change("order", after[who + 1], bits)
        return Transition(tuple(after), RESTART, BOSS)


def of_engine(world: World, what: str, local: Local, how: tuple[int, ...]) -> Local:
    """What a fault makes of the local state of an engine."""
    if what == "without":
        return local._replace(inbox=local.inbox & ~how[0], outbox=local.outbox & ~how[1])
    return buried(local._replace(outbox=local.outbox | _says_died(world, local)))  # "dies"


def repeated(world: World, local: Local, bits: int) -> tuple[Local, tuple[int]]:
    """A machine that has ended the operation and is asked about it says its last word again, if words may be lost.

    Question and answer take any time together, so the answer is in flight as soon as the question is.
    """
    state = world.state_of(local, 0)
    asked = bits & world.repeats[local.role] if state is not None and state.end else 0
    if state is not None and asked:
        local = local._replace(outbox=local.outbox | state.outbox)
    return local, (bits & ~asked,)


def of_boss(what: str, boss: Boss, how: tuple[int, ...]) -> Boss:
    """What a fault makes of the state of the coordinator."""
    if what == "restarts":
        return boss._replace(stand=Stand(how[0]), down=False)
    kind = how[0] if what == "spend" else CRASH
    a, b, c, d = (count + (place == kind) for place, count in enumerate(boss.spent))
    after = boss._replace(spent=(a, b, c, d), mourned=boss.mourned or (what == "spend" and bool(how[1])))
    return after if what == "spend" else after._replace(stand=None, down=True)


def _says_died(world: World, local: Local) -> int:
    """The watchdog speaks in the name of the dead, if the coordinator of this protocol wants to hear it."""
    names = {machine.name for machine in world.machines[local.role]}
    outbox = world.tables.mail.outbox
    return sum(bit for (message, sender), bit in outbox.items() if message in WATCHDOG and sender in names)


def restarts(world: World) -> dict[int, int]:
    """The state in which a restarted coordinator begins, by the decision that its journal holds (0: none).

    That which a message `restarted` starts; else what was decided is carried on, and before that the engines are asked:
    the first state of the phase `completing`, `aborting` or `asking`. Empty if there is neither.
    """
    table = world.tables.coordinator
    named = [target for _, _, target, name in table.starts if name == "restarted"] if table else []
    if table is None or named:
        return {0: named[0]} if named else {}
    phases: dict[str, int] = {}
    for state in world.program.machines[table.name].states.values():
        phases.setdefault(state.phase, [other.name for other in table.states].index(state.name))
    found = {0: phases.get("asking", -1), DONE: phases.get("completing", -1), ABORTED: phases.get("aborting", -1)}
    return {bits: begins for bits, begins in found.items() if begins >= 0} if found[0] >= 0 else {}


def over(world: World, state: State) -> bool:
    """Whether the operation has ended for its coordinator: what dies later belongs to no operation."""
    return world.operation and world.end_of_boss(state[0]) != RUNNING


def mourned(world: World, local: Local, boss: Boss) -> bool:
    """Whether the death of this engine costs the service: it is a member of the generation that serves.

    An engine of the old generation is one until it stops to serve. A new one is one as soon as its join succeeded; with
    `strict` only once it has said `switched`, or the coordinator has decided to commit.
    """
    role = world.tables.roles[local.role]
    serving = [stand for table, stand in zip(world.machines[local.role], local.stands, strict=True) if table.serving]
    if role in world.tables.members(OLD):
        return not serving or any(stand is not None for stand in serving)
    if role not in world.tables.members(NEW):
        return False
    if world.regime.strict and not decided(world, boss) and not _said(world, local):
        return False
    return local.switched or joined(world, local)


def _said(world: World, local: Local) -> bool:
    """Whether this engine has told the coordinator that it has switched."""
    name = world.machines[local.role][0].name
    return bool(local.outbox & world.tables.mail.outbox.get(("switched", name), 0))


def decided(world: World, boss: Boss) -> bool:
    """Whether the coordinator commits: it wrote that down, or it has no other way left."""
    return bool(boss.journal & DONE) or (boss.stand is not None and decides(world, int(boss.stand.state)) == DONE)


DEATH = BossMove("dies", Boss(None))
RESTART = BossMove("is started again", Boss(None))


def _bits(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit
