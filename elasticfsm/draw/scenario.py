"""How an operation goes when nothing is wrong: one engine of each role walked through its main path, together.

A message enables its receiver, a collective and a vote need all their members, an awaited fact needs its step. What
comes out is a list of events, from which `chart` writes a sequence chart. This is an illustration, not a check.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from elasticfsm.compile import COORDINATOR, OUTSIDE, Program
from elasticfsm.draw.path import main_path, own_leaves
from elasticfsm.protocol import Guard, Leave, Machine, Step, Thread

EventKind = Literal["message", "inside", "step", "collective", "vote", "phase", "end"]
PEERS = "other engines"


class Event(msgspec.Struct):
    """One row of a chart: who takes part (sender first), what is written, and in which thread it happens."""

    kind: EventKind
    who: tuple[str, ...]
    text: str
    thread: Thread = ""


class Player:
    """One machine on its main path; `at` is the index of its state there, `step` that of its next step."""

    def __init__(self, role: str, machine: Machine, starts: bool) -> None:
        self.role = role
        self.machine = machine
        self.path = main_path(machine)
        self.states = [name for name, _ in self.path] + [self.path[-1][1].target]
        self.at = 0 if starts else -1
        self.step = 0
        self.facts: set[str] = set()
        self.mail: set[str] = set()
        self.told: set[str] = set()  # machines of the same engine that it has sent something
        self.switched = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of the state in which it stands."""
        return self.machine.states[self.states[self.at]].steps

    @property
    def thread(self) -> Thread:
        """Where those steps run."""
        return self.machine.states[self.states[self.at]].thread

    @property
    def way(self) -> Leave | None:
        """How it leaves that state; nothing at the end of the path."""
        return self.path[self.at][1] if 0 <= self.at < len(self.path) else None

    def next_step(self) -> Step | None:
        """The step before which it stands."""
        return self.steps[self.step] if self.at >= 0 and self.step < len(self.steps) else None


class Scenario:
    """Walks the players of one program; `run` gives the events."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.events: list[Event] = []
        own = {name: m for name, m in program.machines.items() if name.startswith(f"{program.name}.")}
        self.players = {
            name: Player(name.split(".")[1], machine, not _started_by_player(program, name, own))
            for name, machine in own.items()
        }
        self.peers = program.groups.get("active") == ("engine",)

    def run(self) -> list[Event]:
        """Runs every player until it waits, again and again, until nobody moves."""
        for name, player in self.players.items():
            if player.at == 0:
                self._start_from_outside(name, player)
                self._enter(name, player)
        moved = True
        while moved:
            turns = [self._run_until_it_waits(name, player) for name, player in self.players.items()]
            moved = any(turns)
        return self.events

    def _run_until_it_waits(self, name: str, player: Player) -> bool:
        moved = False
        while player.at >= 0 and self._move(name, player):
            moved = True
        return moved

    def _move(self, name: str, player: Player) -> bool:
        step = player.next_step()
        if step is not None:
            return self._do(player, step)
        if player.way is None:
            return False
        if self._open(name, player, player.way.guard):
            player.at += 1
        elif (back := self._back(player)) is not None:
            player.at = back
        else:
            return False
        player.step = 0
        self._enter(name, player)
        return True

    def _back(self, player: Player) -> int | None:
        """Where on its path a message leads that it did not expect next: one round more of a loop."""
        for way in own_leaves(player.machine.states[player.states[player.at]]):
            if way.guard.kind == "received" and way.guard.name in player.mail and way.target in player.states:
                player.mail.discard(way.guard.name)
                return player.states.index(way.target)
        return None

    def _start_from_outside(self, name: str, player: Player) -> None:
        for message, state in player.machine.starts.items():
            if state == player.states[0]:
                sender = next(iter(self.program.senders(name, message)), "outside")
                self.events.append(Event("message", (sender, player.role), message))

    def _enter(self, name: str, player: Player) -> None:
        state = player.machine.states[player.states[player.at]]
        before = player.machine.states[player.states[player.at - 1]].phase if player.at else ""
        if player.role == COORDINATOR and state.phase not in ("", before):
            self.events.append(Event("phase", (player.role,), state.phase))
        for message in state.sends:
            self._send(name, player, message)

    def _send(self, name: str, player: Player, message: str) -> None:
        routes = self.program.routes_from(name, message)
        receivers = [self.players[route.receiver] for route in routes if route.receiver in self.players]
        others = [route.receiver for route in routes if route.receiver not in self.players]
        for receiver in receivers:
            if receiver is player:
                self.events.append(Event("message", (player.role, PEERS), message))
                continue
            self.events.append(Event("message", (player.role, receiver.role), message))
            receiver.mail.add(message)
            if receiver.at < 0 and receiver.machine.starts.get(message) == receiver.states[0]:
                receiver.at = 0
        for other in others:
            if other not in OUTSIDE:
                player.told.add(other)
                self.events.append(Event("inside", (player.role,), f"{message} → {other}"))
            elif self.players and player.role != COORDINATOR:
                self.events.append(Event("message", (player.role, other), message))

    def _open(self, name: str, player: Player, guard: Guard) -> bool:
        if guard.kind == "agreed":
            return self._vote(player, guard)
        if guard.kind in ("done", "answer"):
            return True
        if guard.name in player.mail:
            player.mail.discard(guard.name)
            return True
        for sender in self.program.senders(name, guard.name):
            if sender in OUTSIDE:
                self.events.append(Event("message", (sender, player.role), guard.name))
                return True
            if sender in player.told:
                self.events.append(Event("inside", (player.role,), f"{guard.name} ← {sender}"))
                return True
        return False

    def _vote(self, player: Player, guard: Guard) -> bool:
        members = self._members(player, "active")
        ready = [p for p in members if p.way is not None and p.next_step() is None and p.way.guard == guard]
        if len(ready) < len(members):
            return False
        self.events.append(Event("vote", self._columns(members), f"agreed {guard.name}"))
        for member in members:
            if member is not player:
                self._advance(member)
        return True

    def _advance(self, player: Player) -> None:
        player.at += 1
        player.step = 0
        self._enter(next(name for name, p in self.players.items() if p is player), player)

    def _do(self, player: Player, step: Step) -> bool:
        means = step.meaning.means
        if means in ("rendezvous", "agree"):
            members = self._members(player, step.argument)
            if any(member.next_step() != step for member in members):
                return False
            text = self._text(player, step)
            pauses = any(member.thread == "foreground" for member in members)
            thread: Thread = "foreground" if pauses else player.thread
            self.events.append(Event("collective", self._columns(members), text, thread))
        else:
            if means in ("await", "wait") and not self._facts_hold(player, step):
                return False
            members = [player]
            self.events.append(Event("step", (player.role,), self._text(player, step), player.thread))
        for member in members:
            member.step += 1
            member.facts.update(step.facts("provides"))
            member.switched |= means == "rename"
        return True

    def _text(self, player: Player, step: Step) -> str:
        """The step, with the answer that the main path takes."""
        answer = player.way.guard if player.way is not None and player.way.guard.kind == "answer" else None
        chosen = answer is not None and (answer.name in step.meaning.answers)
        return f"{step} → {answer.name}" if answer is not None and chosen else str(step)

    def _facts_hold(self, player: Player, step: Step) -> bool:
        for fact in step.facts("awaits"):
            words = fact.split()
            holders = [p for p in self.players.values() if p.role == words[1]] if words[0] == "all" else [player]
            if any(" ".join(words[2:] if words[0] == "all" else words) not in p.facts for p in holders):
                return False
        if step.meaning.means == "wait":
            return all(set(step.facts("requires")) <= p.facts for p in self._members(player, step.argument))
        return True

    def _members(self, player: Player, group: str) -> list[Player]:
        if self.peers:
            return [player]
        named = "standby" if group == "standby" or player.switched else "active"
        return [p for p in self.players.values() if p.role in self.program.groups[named]]

    def _columns(self, members: list[Player]) -> tuple[str, ...]:
        return (*(member.role for member in members), *((PEERS,) if self.peers else ()))


def _started_by_player(program: Program, name: str, own: dict[str, Machine]) -> bool:
    """Whether another machine of the same protocol starts this one."""
    return any(sender in own and sender != name for m in own[name].starts for sender in program.senders(name, m))
