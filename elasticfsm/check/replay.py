"""A path of the checker as micro-steps of a stage, and the state that it leads to in the words of both."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from elasticfsm.check.coordinator import BossMove
from elasticfsm.check.faults import DEATH, RESTART
from elasticfsm.check.move import Move
from elasticfsm.check.successors import Successors
from elasticfsm.check.tables import KINDS, NEW, OLD, StateTable
from elasticfsm.check.transition import BOSS, Transition
from elasticfsm.check.world import ANSWERED, ENTERED, FAILED, FAILURE, OUT, Stand, State, World
from elasticfsm.errors import ElasticError
from elasticfsm.testing.stage.act import COORDINATOR, PROCESS, Act, Verb
from elasticfsm.testing.stage.view import DEAD, EngineView, Place, View

Signature = tuple[object, ...]
LOST, AGAIN, DYING = (
    ", a message is lost",
    ", and the message comes again",
    ", and dies before all its messages are out",
)
WORDS = {OLD: "old", NEW: "new"}  # the generations as a stage calls them


class Untold(ElasticError):
    """A move of the checker that a stage has no micro-step for, or that the unreduced system does not have."""


@dataclass
class Plain:
    """Follows a path in the world without any reduction: nothing is forgotten there, and every message has a name."""

    world: World
    successors: Successors = field(init=False)
    state: State = field(init=False)
    stale: int = 0  # wakes of the old generation at engines that have switched: void, whatever the wave

    def __post_init__(self) -> None:
        self.world.forget, self.world.bold = None, False
        self.successors = Successors(self.world)
        self.begin()

    def begin(self) -> None:
        """Back to the start."""
        self.state, self.stale = self.world.initial(), 0

    def follow(self, world: World, step: Transition, before: State) -> list[Act]:
        """Takes the move that a step of another world (the reduced one) is, and tells it as micro-steps."""
        wanted = signature(world, step, before)
        ways = self.successors.all(self.state)
        same = [one for one in ways if signature(self.world, one, self.state) == wanted]
        if same:
            told = set(acts(world, step, before))
            return self.take(max(same, key=lambda one: len(told & set(acts(self.world, one, self.state)))))
        found = {signature(self.world, one, self.state): one for one in reversed(ways)}
        for known, one in found.items():  # one wake stands for those of all senders
            if wanted[-1] and known[-1] and known[:-1] == wanted[:-1]:
                return self.take(one)
        raise Untold(f"{wanted}: the unreduced system does not have this move here")

    def take(self, step: Transition) -> list[Act]:
        """Takes one of its own transitions; what goes wrong in it are micro-steps of their own."""
        told = list(acts(self.world, step, self.state))
        self._age(step)
        self.state = step.target
        return told

    def view(self) -> View:
        """Where it stands, in the words of a stage."""
        return view_of(self.world, (*self.state[:-1], self.state[-1] & ~self.stale))

    def _age(self, step: Transition) -> None:
        move, mail = step.move, step.target[-1]
        if isinstance(move, Move):
            switched = {who for who in range(self.world.count) if self._switched(step.target, who)}
            if step.who in switched and not self._switched(self.state, step.who):
                self.stale |= mail & self._to({step.who})
            if move.peers:
                sent = mail & self._to(range(self.world.count), move.peers, step.who)
                self.stale = self.stale & ~sent | (0 if step.who in switched else sent & self._to(switched))
        self.stale &= mail

    def _switched(self, state: State, who: int) -> bool:
        return self.world.locals[state[who + 1]].switched

    def _to(self, receivers: Iterable[int], messages: Iterable[int] | None = None, sender: int | None = None) -> int:
        """The bits of messages to some engines; all messages and all senders by default."""
        count = self.world.count
        numbers = range(len(self.world.tables.mail.peers)) if messages is None else messages
        senders = range(count) if sender is None else [sender]
        return sum(1 << (m * count + to) * count + who for m in numbers for to in receivers for who in senders)


def signature(world: World, step: Transition, before: State) -> Signature:
    """What a transition is, without the numbers that depend on the world."""
    move = step.move
    if isinstance(move, BossMove):
        what = move.edges[0][2] if move.edges else move.text
        return (step.who, what, step.said, _sender(world, step, before))
    guard = move.edges[0][2] if move.verb == "guard" else _step(world, step, before)
    return (step.who, move.machine, move.verb, guard, step.said, move.cut, _answer(move), _sender(world, step, before))


def acts(world: World, step: Transition, before: State) -> Iterator[Act]:
    """A transition and what goes wrong in it: messages that are lost or come again, a sender that dies."""
    who = COORDINATOR if step.who == BOSS else world.names[step.who]
    if step.move is DEATH:
        yield Act(who, PROCESS, "dies", "here")
        return
    if step.move is RESTART:
        stand, table = world.bosses[step.target[0]].stand, world.tables.coordinator
        yield Act(who, PROCESS, "restarts", table.states[stand.state].name if table and stand else "")
        return
    told = act(world, step, before)
    yield told
    if LOST in step.said or DYING in step.said:
        yield from _lost(world, step, before)
    if AGAIN in step.said:
        yield Act(who, PROCESS, "repeats", told.what.rpartition(" ")[2], told.more)
    if DYING in step.said:
        yield Act(who, PROCESS, "dies", "here")


def _lost(world: World, step: Transition, before: State) -> Iterator[Act]:
    """The messages that a move sends and that are not there after it."""
    move, mail = step.move, world.tables.mail
    after = [world.locals[number] for number in step.target[1:-1]]
    if isinstance(move, BossMove):
        for role, bits in move.orders:
            for who in world.where[role]:
                state = world.state_of(after[who], 0)
                if state is not None and state.end:  # it says its last word again, and that may be lost
                    words = state.outbox & ~after[who].outbox if bits & world.repeats[after[who].role] else 0
                    said = {name for (name, _), bit in mail.outbox.items() if words & bit}
                    yield from (Act(COORDINATOR, PROCESS, "loses", name, world.names[who]) for name in sorted(said))
                    continue
                gone = bits & ~after[who].inbox if not after[who].dead else 0
                named = {name for (name, _, _), bit in mail.inbox.items() if gone & bit}
                yield from (Act(world.names[who], PROCESS, "loses", name, COORDINATOR) for name in sorted(named))
        return
    mine = world.names[step.who]
    gone = move.target.outbox & ~world.locals[before[step.who + 1]].outbox & ~after[step.who].outbox
    named = {name for (name, _), bit in mail.outbox.items() if gone & bit}
    yield from (Act(COORDINATOR, PROCESS, "loses", name, mine) for name in sorted(named))
    count, generation = world.count, int(after[step.who].switched)
    for (name, _), number in mail.peers.items():
        for other in world.members[generation] if number in move.peers else ():
            there = step.target[-1] >> ((number * count + other) * count + step.who) & 1
            if other != step.who and not there and not after[other].dead:
                yield Act(world.names[other], PROCESS, "loses", name, mine)


def act(world: World, step: Transition, before: State) -> Act:
    """The micro-step of a stage that a transition is; raises `Untold` for what a stage does not have."""
    move, sender = step.move, _sender(world, step, before)
    if isinstance(move, BossMove):
        name = world.program.coordinator
        if move.edges:
            return Act(COORDINATOR, name, "takes", move.edges[0][2], sender)
        what, _, answer = move.text.partition(" = ")
        if move.cost == FAILURE:
            return Act(COORDINATOR, name, "fails", what.removesuffix(" failed"))
        return Act(COORDINATOR, name, "does", what, answer)
    who = world.names[step.who]
    machine = world.machines[world.locals[before[step.who + 1]].role][move.machine].name
    if move.verb == "guard":
        return Act(who, machine, "takes", move.edges[0][2].replace("starts ", "received ", 1), sender)
    verbs: dict[str, Verb] = {"enter": "enters", "leave": "leaves", "step": "does", "fail": "fails"}
    if move.verb not in verbs:
        raise Untold(f"{who} {machine}: a stage has no micro-step for `{move.verb}` ({move.text})")
    said = step.said
    for fault in (LOST, AGAIN, DYING):
        said = said.replace(fault, "")
    more = {"enter": said, "step": _answer(move), "fail": "closing" if _closes(world, step, before) else ""}.get(
        move.verb, ""
    )
    return Act(who, machine, verbs[move.verb], _step(world, step, before), more)


def _step(world: World, step: Transition, before: State) -> str:
    local = world.locals[before[step.who + 1]]
    found = world.step_of(local, step.move.machine) if isinstance(step.move, Move) else None
    return found.text if found else ""


def _closes(world: World, step: Transition, before: State) -> bool:
    """Whether a failure closes this side of a group."""
    return world.locals[step.target[step.who + 1]].closed != world.locals[before[step.who + 1]].closed


def _answer(move: Move) -> str:
    return move.text.partition(" = ")[2] if move.verb == "step" else ""


def _sender(world: World, step: Transition, before: State) -> str:
    """From which engine a message was taken, where several may have sent it."""
    move = step.move
    if isinstance(move, BossMove):
        if move.look != "received":
            return ""
        role, bit = move.sources[0]
        had = [world.locals[before[who + 1]].outbox & bit for who in world.where[role]]
        has = [world.locals[step.target[who + 1]].outbox & bit for who in world.where[role]]
        return next(
            (world.names[who] for who, a, b in zip(world.where[role], had, has, strict=True) if a and not b), ""
        )
    if move.takes < 0:
        return ""
    gone = before[-1] if AGAIN in step.said else before[-1] & ~step.target[-1]
    count = world.count
    for sender in range(count):
        if gone >> ((move.takes * count + step.who) * count + sender) & 1:
            return world.names[sender]
    return ""


def view_of(world: World, state: State) -> View:
    """A state of the unreduced world in the words of a stage."""
    boss, table = world.bosses[state[0]], world.tables.coordinator
    coordinator = _place(world, table.states[boss.stand.state], boss.stand) if table and boss.stand else Place("")
    if boss.down:
        coordinator = Place("dead")
    return View(coordinator, {name: _engine(world, state, who) for who, name in enumerate(world.names)})


def _engine(world: World, state: State, who: int) -> EngineView:
    local, mail = world.locals[state[who + 1]], world.tables.mail
    machines = world.machines[local.role]
    own = machines[0].name if world.operation else ""
    first = world.state_of(local, 0)
    gone = own if first is not None and first.end else ""
    places = {}
    for machine, stand in enumerate(local.stands):
        at = world.state_of(local, machine)
        places[machines[machine].name] = (
            _place(world, at, stand) if at is not None and stand is not None else Place("absent")
        )
    if local.dead:
        return DEAD._replace(said=frozenset(key for key, bit in mail.outbox.items() if local.outbox & bit))
    generations = {place for place in (OLD, NEW) if local.closed >> place & 1}
    return EngineView(
        runs=local.present,
        machines=places,
        facts=frozenset(world.tables.facts.listed(local.facts)),
        active=WORDS[NEW] if local.switched else WORDS[OLD] if who in world.members[OLD] else "",
        closed=frozenset(WORDS[place] for place in generations),
        entered=tuple(sorted((WORDS[e.generation], KINDS[e.kind], e.step) for e in local.pending)),
        mail=frozenset(k for k, bit in mail.inbox.items() if local.inbox & bit and k[2] in places and k[2] != gone),
        wakes=frozenset(_wakes(world, state[-1], who)),
        said=frozenset(key for key, bit in mail.outbox.items() if local.outbox & bit),
    )


def _place(world: World, at: StateTable, stand: Stand) -> Place:
    inside = "" if stand.inside == OUT else "entered" if stand.inside == ENTERED else "released"
    answer = world.answers[stand.outcome - ANSWERED] if stand.outcome >= ANSWERED else ""
    return Place(at.name, stand.step, inside, "failed" if stand.outcome == FAILED else answer)


def _wakes(world: World, mail: int, who: int) -> Iterator[tuple[str, str]]:
    count = world.count
    for (message, _), number in world.tables.mail.peers.items():
        for sender in range(count):
            if mail >> ((number * count + who) * count + sender) & 1:
                yield message, world.names[sender]
