"""The steps of a view: of the coordinator, of one of its engines, of a third engine that sends to its peers."""

from __future__ import annotations

from elasticfsm.check.allsizes.places import Place
from elasticfsm.check.allsizes.releasing import held_up, release
from elasticfsm.check.allsizes.views import Company, View, Views
from elasticfsm.check.coordinator import BossMove, boss_moves
from elasticfsm.check.move import Move
from elasticfsm.check.tables import OLD
from elasticfsm.check.transition import Interrupted
from elasticfsm.check.world import ABORTED, CALM, DONE


class Moving:
    """Looks at views and adds what they become."""

    def __init__(self, views: Views) -> None:
        self.views = views
        self.world = views.world
        self.places = views.places
        self._boss: dict[int, list[tuple[int, BossMove]]] = {}
        self._alarmed = self.world.bold and self.world.regime == CALM

    def look(self, view: View) -> None:
        """Adds all that a view becomes by one step of a system of which it is a part."""
        company = self.views.company(view)
        if not company.whole():
            return
        release(self.views, company)
        if not held_up(self.views, company):
            return
        self._judge(company)
        one, other = company.pair
        if one.prompt or other.prompt:
            for mover, beside in ((one, other), (other, one))[: 1 if one is other else 2]:
                if mover.prompt:
                    self._enter(company, mover, beside, *mover.prompt)
            return
        if any(third.prompt for third in company.thirds):
            company = company.quiet()
            if not company.whole() or not held_up(self.views, company):
                return
        if self.world.operation:
            self._coordinator(company)
            if self.views.prompt and self.hurries(view[0]):
                return
        self._engine(company, one, other)
        if one is not other:
            self._engine(company, other, one)
        for third in company.thirds:
            if third.calls:
                self._peer(company, third)

    def orders(self, boss: int) -> list[tuple[int, BossMove]]:
        """The moves of the coordinator, each with the number of the state to which it leads."""
        found = self._boss.get(boss)
        if found is None:
            moves = boss_moves(self.world, self.world.bosses[boss])
            found = self._boss[boss] = [(self.world.boss(move.target), move) for move in moves]
        return found

    def hurries(self, boss: int) -> bool:
        """Whether the coordinator has one move that nothing prevents or changes: then it may be explored alone."""
        moves = self.orders(boss)
        if len(moves) != 1:
            return False
        move = moves[0][1]
        return not move.look and not move.tag and not move.bad and (not move.edges or self._alarmed)

    def _judge(self, company: Company) -> None:
        """What is wrong with a view by itself."""
        boss, one, other = company.view[0], *company.pair
        for place in company.pair:
            if place.known.bad:
                self.views.flag(place.known.bad, company.view, "")
        ends = self.world.end_of_boss(boss) | one.known.end | other.known.end
        if ends & DONE and ends & ABORTED:
            self.views.flag(("agreement",), company.view, "")
        if self._alarmed and (one.known.alarm or other.known.alarm or self.world.boss_interrupts(boss)):
            raise Interrupted

    def _coordinator(self, company: Company) -> None:
        view = company.view
        for number, move in self.orders(view[0]):
            if not self._arrived(company, move):
                continue
            self.views.flag(move.bad, view, move.text)
            after = [self._told(number, move, place) for place in company.pair]
            self.views.add(number, after[0], after[1], view, f"coordinator: {move.text}")
            if move.look == "received":
                for mine, beside in ((0, 1), (1, 0)):
                    for bit in _bits(move, company.pair[mine].role):
                        if company.pair[mine].known.outbox & bit:
                            taken = self._take(after[mine], bit)
                            self.views.add(number, taken, after[beside], view, f"coordinator: {move.text}")

    def _arrived(self, company: Company, move: BossMove) -> bool:
        """Whether what the coordinator looks for may have been sent."""
        if not move.look:
            return True
        if move.look in ("any", "received"):
            sent = self.views.sent[company.view[0]]
            wanted = [(role, bit) for role, bit in move.sources if sent[role] & bit]
            return bool(wanted) and company.some(lambda one: _sent(one, wanted))
        alive = move.look == "all alive"
        return company.every(
            lambda one: (
                (alive and not one.local.present)
                or all(one.known.outbox & bit for role, bit in move.sources if role == one.role)
            )
        )

    def _take(self, number: int, bit: int) -> int:
        change = self.views.successors.change
        return self.places.changed(number, ("take", bit), lambda state: change("take", state, bit))

    def _told(self, target: int, move: BossMove, place: Place) -> int:
        """The place of an engine after a move of the coordinator."""
        change = self.views.successors.change

        def told(state: int) -> int:
            state = self._heard(target, state)
            for role, bits in move.orders:
                state = change("order", state, bits) if role == place.role else state
            return change("launch", state) if move.launches == place.role else state

        return self.places.changed(place.number, ("order", target, move.orders, move.launches), told)

    def _heard(self, boss: int, state: int) -> int:
        forget = self.world.forget
        return state if forget is None else self.views.successors.change("heard", state, forget.asked(boss))

    def _engine(self, company: Company, mover: Place, beside: Place) -> None:
        view, add = company.view, self.views.add
        for target, move in mover.known.plain:
            self.views.flag(move.bad, view, move.text)
            add(view[0], self.places.number(target, mover.mail), beside.number, view, move.text)
        for target, move in mover.known.open:
            if move.enters:
                self._enter(company, mover, beside, target, move)
                continue
            after = self._heard(view[0], target)
            if move.takes >= 0 or move.peers:
                self._mailed(company, mover, beside, after, move)
            elif self._may(company, move):
                self.views.flag(self._wrong(mover, beside, move), view, move.text)
                add(view[0], self.places.number(after, mover.mail), beside.number, view, move.text)

    def _may(self, company: Company, move: Move) -> bool:
        """Whether the guard of a move, which asks about other engines, may hold."""
        if move.cut >= 0:
            members = self.places.members[move.cut]
            closed = company.some(lambda one: one.role in members and bool(one.known.closed >> move.cut & 1))
            if closed and self.world.bold and move.harsh:
                raise Interrupted
            return closed
        if not company.every(lambda one: self.has(one, move.needs)):
            return False
        return not move.lacks or company.some(lambda one: not self.has(one, move.lacks))

    def has(self, place: Place, facts: tuple[tuple[str, int], ...]) -> bool:
        """Whether this engine has the facts that are asked of its role, or of everybody."""
        where = self.world.where
        return all(place.known.facts & mask == mask for role, mask in facts if role == place.role or role not in where)

    def _enter(self, company: Company, mover: Place, beside: Place, target: int, move: Move) -> None:
        """An engine enters a collective; whether that was the last one is asked of the new view."""
        view = company.view
        self.views.flag(self._wrong(mover, beside, move), view, move.text)
        entered = self.places.number(target, mover.mail)
        self.views.add(view[0], entered, beside.number, view, move.text)

    def _wrong(self, mover: Place, beside: Place, move: Move) -> set[str]:
        """The properties that a move refutes because of an engine beside it (or of the mover)."""
        bad = set(move.bad)
        for one in (mover, beside):
            for fact in move.requires:
                if not self.has(one, (fact,)):
                    bad.update(self.world.tables.facts.refuted_by(fact[1]))
        if move.closes >= 0 and self._in_use(beside, move.closes):
            bad.add("no_use_after_destroy")
        if move.enters is None or beside.role not in self.places.members[move.enters[0]]:
            return bad
        generation, kind, step = move.enters
        mine = len(mover.known.view.get((generation, kind), ()))
        theirs = beside.known.view.get((generation, kind), ())
        if len(theirs) > mine and theirs[mine] != step.name:
            bad.add("collective_order")
        if beside.known.closed >> generation & 0b101 == 1 and step.group != "standby":
            bad.add("no_use_after_destroy")
        gone = generation == OLD and beside.local.switched
        if step.group == "active" and (gone or (1 - generation, step.name) in beside.known.waits):
            bad.add("membership")
        return bad

    def _in_use(self, beside: Place, generation: int) -> bool:
        if beside.role not in self.places.members[generation]:
            return False
        joined = self.world.tables.facts.bits.get("active joined", 0)
        current = beside.local.switched == bool(generation)
        inside = any(place == generation for place, _ in beside.known.inside)
        return inside or bool(current and beside.known.facts & joined)

    def _mailed(self, company: Company, mover: Place, beside: Place, state: int, move: Move) -> None:
        """A move that takes a message of a peer, or sends one to all peers of the generation."""
        view = company.view
        if move.takes >= 0 and not mover.mail >> move.takes & 1:
            return
        told = beside.number
        if move.peers:
            told = self.places.told(told, _messages(move), int(mover.local.switched))
        self.views.flag(move.bad, view, move.text)
        for mail in self._left(mover, move):
            self.views.add(view[0], self.places.number(state, mail), told, view, move.text)

    def _left(self, mover: Place, move: Move) -> set[int]:
        """The mail after one message was taken: another one like it may be there, unless one stands for all."""
        if move.takes < 0:
            return {mover.mail}
        gone = mover.mail & ~(1 << move.takes)
        return {gone} if self.places.once >> move.takes & 1 else {gone, mover.mail}

    def _peer(self, company: Company, third: Place) -> None:
        """What a view becomes when an engine beside it sends to its peers."""
        boss, one, other = company.view
        for move in third.calls:
            if move.takes < 0 or third.mail >> move.takes & 1:
                told = [self.places.told(number, _messages(move), int(third.local.switched)) for number in (one, other)]
                self.views.add(boss, told[0], told[1], company.view, f"a third engine: {move.text}")


def _messages(move: Move) -> int:
    mask = 0
    for message in move.peers:
        mask |= 1 << message
    return mask


def _bits(move: BossMove, role: str) -> list[int]:
    return [bit for source, bit in move.sources if source == role]


def _sent(place: Place, sources: list[tuple[str, int]]) -> bool:
    return any(role == place.role and place.known.outbox & bit for role, bit in sources)
