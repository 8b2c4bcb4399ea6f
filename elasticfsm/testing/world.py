"""A deterministic world in memory for the real machines of all roles: one micro-step at a time, in any order.

Everything that the runtime decides is decided by the same objects here (seats, mailrooms, guard selection); only the
hands are fake. A micro-step is: a letter arrives, a machine takes a guard, or a thread of an engine goes on by one
enter or leave. Who goes first is up to the caller: `actions` lists what is possible, `act` does one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from elasticfsm.compile import Program
from elasticfsm.mailbox import Letter
from elasticfsm.testing.boss import Boss
from elasticfsm.testing.ground import Ground, Violated
from elasticfsm.testing.player import Choose, Player


class Action(NamedTuple):
    """One possible micro-step: who, and what."""

    who: str
    what: str

    def __str__(self) -> str:
        return f"{self.who}: {self.what}"


class World:
    """One operation over engines that serve already; `counts` says how many engines there are of each role.

    `choose` picks the answers of steps, such as whether a rebalance has more layers. Raises `Violated` from `act` and
    `check` when a property does not hold. `trace` lists what was done.
    """

    def __init__(self, program: Program, counts: Mapping[str, int], choose: Choose) -> None:
        self.program = program
        self.ground = Ground()
        self.trace: list[str] = []
        self.mail: dict[tuple[str, str], list[Letter]] = {}  # (from, to) -> letters, first in, first out
        self.roles = {f"{role}{index}": role for role in program.roles for index in range(counts[role])}
        old = tuple(engine for engine, role in self.roles.items() if role in program.groups["active"])
        self.ground.members[":0"] = old
        self.players = {
            engine: Player(self, engine, role, engine in old, choose) for engine, role in self.roles.items()
        }
        members = tuple(engine for engine, role in self.roles.items() if role in program.groups["standby"])
        self.ground.begin("op:1", members, self.roles)
        self.boss = Boss(self, choose)
        for player in self.players.values():
            player.start()
        self.boss.deliver(self.boss.letter("scale", "operator"))
        self.check()

    # -- what may happen ---------------------------------------------------------------------------------------

    def actions(self) -> list[Action]:
        """Every micro-step that is possible now, in a fixed order."""
        found = [Action(to, f"mail from {source}") for (source, to), letters in self.mail.items() if letters]
        for engine, player in self.players.items():
            found += [Action(engine, what) for what in player.actions()]
        return found + [Action("coordinator", what) for what in self.boss.actions()]

    def act(self, action: Action) -> None:
        """Does one micro-step and checks every property."""
        self.trace.append(str(action))
        if action.what.startswith("mail from "):
            self._deliver(action.what.removeprefix("mail from "), action.who)
        elif action.who == "coordinator":
            self.boss.act(action.what)
        else:
            self.players[action.who].act(action.what)
        self.check()

    def cancel(self) -> None:
        """The operator sends `cancel`."""
        self.trace.append("operator: cancel")
        self.boss.deliver(self.boss.letter("cancel", "operator"))

    def request(self, engine: str) -> None:
        """A request arrives at an engine; it is done after one forward step."""
        self.trace.append(f"{engine}: request")
        self.players[engine].requests += 1

    def due(self, engine: str) -> None:
        """A rebalance is due on an engine that serves; on all of them it is after the same steps of a long wave."""
        self.trace.append(f"{engine}: due")
        self.players[engine].due = self.players[engine].state_of("serving.engine") != "absent"

    def drive(self, pick: Callable[[list[Action]], Action], limit: int = 20_000) -> None:
        """Goes on until nothing is possible any more, then demands a good end and that everybody rests."""
        for _ in range(limit):
            actions = self.actions()
            if not actions:
                return self.rest()
            self.act(pick(actions))
        raise Violated("good_end", f"no end after {limit} micro-steps\n{self}")

    # -- what must hold ----------------------------------------------------------------------------------------

    def check(self) -> None:
        """Agreement, and the facts that machines hold as long as they live; the rest is checked where it happens."""
        ends = {end for player in self.players.values() for end in [player.ended] if end}
        if self.boss.seat.machine.ended:
            ends.add(self.boss.seat.state)
        if len(ends - {"failed"}) > 1 or (ends == {"done", "failed"}):
            raise Violated("agreement", f"the operation ended as {' and '.join(sorted(ends))}\n{self}")
        for player in self.players.values():
            player.check()

    def rest(self) -> None:
        """Nothing is possible any more: the operation has ended well and every engine of it serves or has left."""
        boss = self.boss.seat
        if boss.state not in ("done", "aborted"):
            raise Violated("no_deadlock", f"nothing is possible any more and the operation has not ended\n{self}")
        for player in self.players.values():
            if player.ended not in ("", boss.state) or (player.started and not player.ended):
                raise Violated("good_end", f"the operation is {boss.state}, {player.engine} is not\n{self}")
        serving = self.program.groups["standby" if boss.state == "done" else "active"]
        for engine, role in self.roles.items():
            state = self.players[engine].state_of("serving.engine")
            if role in serving and state != "idle":
                raise Violated("service_kept", f"{engine} ({role}) does not serve: {state}\n{self}")

    def post(self, source: str, letter: Letter) -> None:
        """A letter leaves its sender for every engine of the receiving role."""
        if letter.receiver == self.program.coordinator:
            targets = ["coordinator"]
        else:
            targets = [to for to in self.players if to != source and self.players[to].hears(source, letter)]
        for to in targets:
            self.mail.setdefault((source, to), []).append(letter)

    def _deliver(self, source: str, to: str) -> None:
        letter = self.mail[source, to].pop(0)
        if to == "coordinator":
            self.boss.deliver(letter)
        else:
            self.players[to].deliver(letter)

    def __str__(self) -> str:
        lines = [f"coordinator: {self.boss.seat.state}"]
        lines += [f"{engine}: {player}" for engine, player in self.players.items()]
        recent = self.trace[-25:]
        return "\n".join([*lines, f"last {len(recent)} of {len(self.trace)} micro-steps:", *recent])
