"""The successors of a global state: local moves are looked up, only what depends on other engines is computed here."""

from __future__ import annotations

from collections.abc import Iterator

from elasticfsm.check.collectives import Outcome, Place, outcomes, released
from elasticfsm.check.coordinator import BossMove, boss_moves
from elasticfsm.check.faults import Faults, of_boss, of_engine, repeated
from elasticfsm.check.future import Future
from elasticfsm.check.known import Locals, Safe, Settled
from elasticfsm.check.move import EXPIRED, Move
from elasticfsm.check.tables import NEW, OLD, StepTable
from elasticfsm.check.transition import BOSS, Interrupted, Transition
from elasticfsm.check.world import CALM, Local, State, World


class Successors:
    """Expands states of one world. `safe(local, move)` names moves that may be taken alone (see `reduce`)."""

    def __init__(self, world: World, safe: Safe | None = None) -> None:
        self.world = world
        self.safe = safe
        self.known = Locals(world, safe)
        self.settled = Settled(self.known)
        self._boss: dict[int, list[tuple[int, BossMove]]] = {}
        self.future = Future(world)
        self.faults = Faults(self) if world.regime.faults else None
        self._courses: dict[tuple[int, ...], bool] = {}
        self._ready: dict[tuple[int, ...], list[tuple[int, BossMove]]] = {}
        self._changed: dict[tuple[object, ...], int] = {}
        count = world.count
        self._returns = any(step.means == "rename" and step.group == "retired" for step in world.tables.steps())
        self._once = world.forget.once if world.forget and not world.regime.faults else 0
        self._same = sum(
            1 << place
            for place in (
                (message * count + who) * count + who
                for message in range(len(world.tables.mail.peers))
                for who in range(count)
            )
        )
        self._lanes = [  # for each engine and each message between peers: its number, and the bits of messages to it
            (who + 1, message, ((1 << count) - 1) << (message * count + who) * count)
            for who in range(count)
            for message in range(len(world.tables.mail.peers))
        ]

    def moves(self) -> list[Move | BossMove]:
        """Every move that was ever looked up."""
        found: list[Move | BossMove] = [move for moves in self._boss.values() for _, move in moves]
        for known in self.known.values():
            found += [move for _, move in (*known.plain, *known.open)]
        return found

    def alone(self, state: State) -> Transition | None:
        """A move that may be explored alone in this state, if there is one."""
        if self.faults is not None:
            return None
        for who in range(self.world.count):
            for target, move in self.known[state[who + 1]].alone:
                found = self.single(state, who, target, move)
                if found is not None:
                    return found
        return self.boss_alone(state) if self.safe and self.world.operation else None

    def single(self, state: State, who: int, target: int, move: Move) -> Transition | None:
        """The transition of a move that may be explored alone, if it has one outcome here and breaks nothing."""
        found = self.open(state, who, target, move)
        if len(found) != 1 or found[0].bad or (move.closes >= 0 and self._near(state, who, move.closes)):
            return None
        if self._asked_for(state, who, target):
            return None
        return found[0]

    def _asked_for(self, state: State, who: int, target: int) -> bool:
        """Whether a fact of this engine ends with which another one may still want to begin a step."""
        gone = self.known[state[who + 1]].facts & self.world.tables.elsewhere
        if gone:
            gone &= ~self.known[target].facts
        return bool(gone) and any(
            self.known[state[other + 1]].wanted & gone for other in range(self.world.count) if other != who
        )

    def boss_alone(self, state: State) -> Transition | None:
        """A move of the coordinator that nothing prevents: a step, or a guard beside which no other can become true."""
        found: list[Transition] = []
        calm = self.world.regime == CALM and self.world.bold
        for number, move in self._coordinator(state):
            if move.tag or (move.edges and not calm and not self._settled_course(state)):
                return None
            found.extend(self._order(state, number, move))
        return found[0] if len(found) == 1 else None

    def _settled_course(self, state: State) -> bool:
        """Whether every guard of the coordinator that is not true now stays false (bold: see `reduce`)."""
        if not self.world.bold or self.world.regime.faults:
            return False
        key = (state[0], *state[1:-1])
        course = self._courses.get(key)
        if course is None:
            course = self._courses[key] = self._course(state)
        return course

    def _course(self, state: State) -> bool:
        ready = {id(move) for _, move in self._coordinator(state)}
        others = [move for _, move in self._boss[state[0]] if id(move) not in ready]
        engines = [(self.world.locals[number], self.known[number].outbox) for number in state[1:-1]]
        return self.future.never(others, engines)

    def settle(self, state: State) -> Iterator[Transition]:
        """The moves of single engines that `settled` passes over, one by one."""
        for who in range(self.world.count):
            while (step := self.settled.step(state[who + 1])) is not None:
                target, move = step
                state = _with(state, who, target)
                yield Transition(state, move, who)

    def all(self, state: State) -> list[Transition]:
        """Every transition that is possible in this state."""
        found = self.orders(state)
        for who in range(self.world.count):
            known = self.known[state[who + 1]]
            for target, move in known.plain:
                found.append(Transition(_with(state, who, target), move, who, move.tag, move.bad))
            for target, move in known.open:
                found.extend(self.open(state, who, target, move))
        if self.world.regime.expiry == "perfect" and self.world.form(state) not in self.world.given_up:
            found = [transition for transition in found if not transition.tag & EXPIRED]
        return found if self.faults is None else self.faults.more(state, found)

    def orders(self, state: State) -> list[Transition]:
        """Every transition of the coordinator that is possible in this state."""
        found: list[Transition] = []
        for number, order in self._coordinator(state) if self.world.operation else ():
            found.extend(self._order(state, number, order))
        return found

    def open(self, state: State, who: int, target: int, move: Move) -> list[Transition]:
        """What a move that depends on others leads to; its texts, its edges and `move.target` are not looked at."""
        if move.enters:
            return self._enter(state, who, target, move)
        target = self._heard(state[0], target)
        if move.takes >= 0 or move.peers:
            return self._mailed(state, who, target, move)
        if move.cut >= 0:
            closed = any(self.known[state[other + 1]].closed >> move.cut & 1 for other in self.world.members[move.cut])
            if closed and self.world.bold and move.harsh:
                raise Interrupted
            return [Transition(_with(state, who, target), move, who, move.tag, move.bad)] if closed else []
        if not self._hold(state, move.needs) or (move.lacks and self._hold(state, move.lacks)):
            return []
        bad = move.bad
        if move.closes >= 0 and self._in_use(state, who, move.closes):
            bad = tuple(sorted({*bad, "no_use_after_destroy"}))
        if not self._hold(state, move.requires):
            bad = tuple(sorted({*bad, *self._missing(state, move.requires)}))
        return [Transition(_with(state, who, target), move, who, move.tag, bad)]

    def _heard(self, boss: int, number: int) -> int:
        """A local state without messages at which the coordinator will never look again."""
        if self.world.forget is None:
            return number
        return self.change("heard", number, self.world.forget.asked(boss))

    def heard_mail(self, state: State) -> State:
        """The state without messages to peers that nobody can take any more, and with one where one is as good as many.

        That one bears its receiver in the place of its senders.
        """
        known, mail, kept = self.known, state[-1], 0
        for who, message, lane in self._lanes:
            if mail & lane and known[state[who]].hears >> message & 1:
                kept |= lane & (self._same if self._once >> message & 1 else mail)
        return state if kept == mail else (*state[:-1], kept)

    def _hold(self, state: State, facts: tuple[tuple[str, int], ...]) -> bool:
        return all(
            self.known[state[other + 1]].facts & mask == mask
            for role, mask in facts
            for other in (self.world.where.get(role) or range(self.world.count))
        )

    def _missing(self, state: State, facts: tuple[tuple[str, int], ...]) -> set[str]:
        """The properties that are refuted because some of these facts do not hold on every engine of their role."""
        missing = [one for one in facts if not self._hold(state, (one,))]
        return {name for _, mask in missing for name in self.world.tables.facts.refuted_by(mask)}

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
        finds_out = self.faults is not None and self._finds_out(state, who, generation)
        mine = len(self.known[state[who + 1]].view.get((generation, kind), ()))
        for other in self.world.members[generation]:
            known = self.known[state[other + 1]]
            if other == who:
                continue
            theirs = known.view.get((generation, kind), ())
            if len(theirs) > mine and theirs[mine] != step.name:
                bad.add("collective_order")
            if known.closed >> generation & 0b101 == 1 and step.group != "standby" and not finds_out:
                bad.add("no_use_after_destroy")
            if step.group == "active" and not finds_out and self._elsewhere(state, other, generation, step.name):
                bad.add("membership")
        if not self._hold(state, move.requires):
            bad.update(self._missing(state, move.requires))
        return (generation, kind), step, tuple(sorted(bad))

    def _elsewhere(self, state: State, other: int, generation: int, step: str) -> bool:
        """Whether a member will not meet who enters this generation: it has switched for good, or waits in the other.

        That does not change when a collective is left, so it may be asked although leaving is explored alone.
        """
        gone = generation == OLD and not self._returns and self.world.locals[state[other + 1]].switched
        return gone or (1 - generation, step) in self.known[state[other + 1]].waits

    def _finds_out(self, state: State, who: int, generation: int) -> bool:
        """Whether an engine that enters a group only learns that it is broken: a member died, failed, or left."""
        if who not in self.world.members[OLD]:
            return True
        return any(
            self.known[state[other + 1]].closed >> generation & 0b100 for other in self.world.members[generation]
        )

    def _release(self, state: State, place: Place, step: StepTable) -> list[tuple[State, Outcome | None]]:
        """Releases instances of a group as long as every member has entered the oldest one."""
        members = self.world.members[place[0]]
        known = [self.known[state[other + 1]] for other in members]
        oldest = {one.view.get(place, ("",))[0] for one in known}
        if len(oldest) > 1 or "" in oldest:  # a member that closed its side has entered nothing
            return [(state, None)]
        meaning = step if step.name in oldest else None
        found: list[tuple[State, Outcome | None]] = []
        local = [self.world.locals[state[other + 1]] for other in members]
        choices = outcomes(self.world, meaning, local) if meaning else [Outcome(2, 0, False)]
        for outcome in choices:
            after = list(state)
            for other in members:
                after[other + 1] = self.change("release", state[other + 1], place, outcome.result)
            if outcome.void:
                after[-1] = self._void(after[-1], members)
                for other in members if self.world.tables.wake_mail else ():
                    after[other + 1] = self.change("quiet", after[other + 1])
            again = self._release(tuple(after), place, step)
            found.extend((then, later or outcome) for then, later in again)
        if not self.world.queued or step.name not in self.world.queued:
            return found
        return [(self._unblocked(then, place), outcome) for then, outcome in found]

    def _unblocked(self, state: State, place: Place) -> State:
        """What stood in the device queues behind a collective that was released has begun, and may be released, too."""
        for step in self.world.tables.steps():
            for generation in (OLD, NEW) if step.name in self.world.queued else ():
                if (generation, step.kind) != place:
                    state = self._release(state, (generation, step.kind), step)[0][0]
        return state

    def _void(self, mail: int, members: list[int]) -> int:
        """Wakes to members of a wave that has ended are void."""
        count = self.world.count
        for wake in self.world.tables.wakes:
            for receiver in members:
                mail &= ~(((1 << count) - 1) << ((wake * count + receiver) * count))
        return mail

    def change(self, what: str, number: int, *how: object) -> int:
        """The number of an engine's local state after others did something to it."""
        key = (what, number, *how)
        found = self._changed.get(key)
        if found is None:
            found = self._changed[key] = self.world.local(self._changes(what, self.world.locals[number], how))
        return found

    def turn(self, what: str, number: int, *how: int) -> int:
        """The number of the coordinator's state after something happened to it or in its environment."""
        key = ("boss", what, number, *how)
        found = self._changed.get(key)
        if found is None:
            found = self._changed[key] = self.world.boss(of_boss(what, self.world.bosses[number], how))
        return found

    def _changes(self, what: str, local: Local, how: tuple[object, ...]) -> Local:  # noqa: PLR0911 - a line for each
        if what == "release":
            return released(self.world, local, *how)  # type: ignore[arg-type]
        if local.dead and what in ("order", "launch"):
            return local
        if what in ("without", "dies"):
            return of_engine(self.world, what, local, how)  # type: ignore[arg-type]
        if what == "quiet":
            return local._replace(inbox=local.inbox & ~self.world.tables.wake_mail)
        if what == "order" and local.stands[0] is not None:
            local, how = repeated(self.world, local, int(how[0]))  # type: ignore[call-overload]
        if what == "order":
            return local._replace(inbox=local.inbox | int(how[0]))  # type: ignore[call-overload]
        if what in ("heard", "take"):
            mask: int = int(how[0]) if what == "heard" else ~int(how[0])  # type: ignore[call-overload]
            return local._replace(outbox=local.outbox & mask)
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
                found.append(Transition((*_with(state, who, target)[:-1], mail & ~bit), move, who, move.tag, move.bad))
        return found

    def _coordinator(self, state: State) -> list[tuple[int, BossMove]]:
        """The moves of the coordinator that are possible: they depend only on what the engines have sent."""
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
                after[who + 1] = self.change("order", after[who + 1], bits)
        for place, who in enumerate(self.world.where.get(move.launches, ())):
            after[who + 1] = self.change("launch", after[who + 1])
            if place < move.stillborn:
                after[who + 1] = self.change("dies", after[who + 1])
        if move.look != "received":
            return [Transition(tuple(after), move, BOSS, move.tag, move.bad)]
        found = []
        for role, bit in move.sources:
            for who in self.world.where[role]:
                if self.known[state[who + 1]].outbox & bit:
                    taken = self.change("take", after[who + 1], bit)
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
