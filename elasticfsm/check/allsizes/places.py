"""What matters of one engine, as a small number: its local state, and the messages of peers in flight to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elasticfsm.check.collectives import Place as Group
from elasticfsm.check.known import Known
from elasticfsm.check.move import Move
from elasticfsm.check.successors import Successors
from elasticfsm.check.tables import NEW, OLD
from elasticfsm.check.world import Local, World


@dataclass(frozen=True, slots=True)
class Place:
    """One place. `mail`: the messages of peers in flight to it; `prompt`: a move that may be explored alone, if any.

    `calls` are the moves that send to peers; `groups` the instances that it has entered, oldest step first, of groups
    of which it is a member.
    """

    number: int
    state: int
    local: Local
    role: str
    mail: int
    known: Known
    prompt: tuple[int, Move] | None
    groups: tuple[tuple[Group, str], ...]
    calls: tuple[Move, ...]


class Places:
    """All places of one world, numbered as they are met; every one stands for those that behave alike."""

    def __init__(self, world: World, successors: Successors, prompt: bool) -> None:
        self.world = world
        self.successors = successors
        self.met: list[Place] = []
        self.once = world.forget.once if world.forget else 0
        self.members = tuple(frozenset(world.tables.members(generation)) for generation in (OLD, NEW))
        self._prompt = prompt
        self._numbers: dict[tuple[int, int], int] = {}
        self._changed: dict[tuple[object, ...], int] = {}

    def __getitem__(self, number: int) -> Place:
        return self.met[number]

    def number(self, state: int, mail: int) -> int:
        """The number of the place of an engine in this local state with this mail from peers."""
        found = self._numbers.get((state, mail))
        if found is None:
            known, settled = self.successors.known, state
            if self.world.forget is not None:
                settled = self.successors.settled[state] if self.successors.safe else state
                kept = mail & known[settled].hears
            else:
                kept = mail
            found = self._numbers.get((settled, kept))
            if found is None:
                found = self._numbers[settled, kept] = len(self.met)
                self.met.append(self._learn(found, settled, kept))
            self._numbers[state, mail] = found
        return found

    def changed(self, number: int, key: tuple[object, ...], change: Callable[[int], int], mail: int = -1) -> int:
        """The place after something happened to its local state, named by `key`; `mail` is what stays of the mail."""
        found = self._changed.get((number, key))
        if found is None:
            place = self.met[number]
            found = self._changed[number, key] = self.number(change(place.state), place.mail & mail)
        return found

    def told(self, number: int, messages: int, generation: int) -> int:
        """The place after a peer has sent these messages to all other members of a generation."""
        place = self.met[number]
        if place.role not in self.members[generation]:
            return number
        return self.number(place.state, place.mail | messages)

    def inside(self, place: Place, group: Group, step: str) -> bool:
        """Whether this engine stands in this step as the oldest of a group, or is no member of it."""
        if place.role not in self.members[group[0]]:
            return True
        return place.known.view.get(group, ("",))[0] == step

    def outside(self, place: Place, group: Group, step: str) -> bool:
        """Whether this engine is a member of a group and has not entered this step as its oldest."""
        return place.role in self.members[group[0]] and place.known.view.get(group, ("",))[0] != step

    def _learn(self, number: int, state: int, mail: int) -> Place:
        local = self.world.locals[state]
        role = self.world.tables.roles[local.role]
        known = self.successors.known[state]
        groups = tuple((group, steps[0]) for group, steps in known.view.items() if role in self.members[group[0]])
        calls = tuple(move for _, move in known.open if move.peers)
        return Place(number, state, local, role, mail, known, self._alone(known), groups, calls)

    def _alone(self, known: Known) -> tuple[int, Move] | None:
        """A move that may be explored alone whatever the other engines do: it enters a group, and has one outcome.

        That it breaks nothing is seen in the views of this place with all others: see `moving`.
        """
        for target, move in known.alone if self._prompt else ():
            if move.enters is None or move.requires or move.enters[2].answers or move.enters[2].means == "agree":
                continue
            gone = known.facts & ~self.successors.known[target].facts & self.world.tables.elsewhere
            if not gone:
                return target, move
        return None
