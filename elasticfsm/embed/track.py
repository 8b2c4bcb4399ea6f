"""One machine of the table as a monitor follows it: positions in lists of steps, and what may come next in each.

A host reports some guards (messages that it received, votes that it saw agreed) and is silent about the others. Those
may have been taken at any moment, `done` only at the end of the list; so what may come next is what any state
offers that is reached from here by silent guards. All of it is worked out once, when the track is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from elasticfsm.embed.program import Machine, Place, State

Event = tuple[str, str, str]  # kind, group, verb
Line = tuple[str, str, dict[str, Any]]  # of the journal: event, machine, fields

ABSENT = "absent"
NOBODY, STEPS, ALL = range(3)


class Entry(NamedTuple):
    """A state that was entered on the way, out of which, by which guard, and the messages that it sends."""

    state: str
    came: str
    guard: str
    sends: tuple[str, ...]


class Seen(NamedTuple):
    """Something that a monitor sees of a list of steps: the event, its step, and the steps before it that are not seen.

    `first` and `last`: whether it begins and ends the step. `after`: unseen steps behind the last event of the list.
    """

    event: Event
    step: str
    first: bool
    last: bool
    before: tuple[str, ...]
    after: tuple[str, ...]


class Edge(NamedTuple):
    """Where something leads: the position, and what the journal says of it. `plain`: nothing else follows from it.

    `entered` and `sends` are the states entered on the way and their messages. `closing` is said when the step has
    ended, `behind` when it ended well: steps that are not seen are said to have happened once what follows was seen.
    """

    to: int
    lines: tuple[Line, ...]
    closing: tuple[Line, ...]
    behind: tuple[Line, ...]
    entered: tuple[str, ...]
    sends: tuple[str, ...]
    plain: bool


class Position(NamedTuple):
    """A place in the list of a state, and whom it holds up: nobody, forward steps, or every machine of the engine."""

    state: str
    passed: int
    blocks: int
    end: bool


class Track:
    """One machine as it is followed; `at` is the position, changed by whoever follows an edge."""

    def __init__(self, machine: Machine, place: Place, heard: Callable[[str], bool]) -> None:
        self.name = machine.name
        self.at = 0
        self.lost = False
        self.mail: set[str] = set()
        self._machine = machine
        self._heard = heard
        self.serving = any(step.means == "agree" for state in machine.states.values() for step in state.steps)
        self._events = {state.name: _seen(state, place) for state in machine.states.values()}
        self.positions = [Position(ABSENT, 0, NOBODY, False), *self._places()]
        self._index = {(p.state, p.passed): number for number, p in enumerate(self.positions)}
        self.steps: list[dict[Event, Edge]] = []
        self.told: list[dict[str, Edge]] = []
        self.enter: list[dict[str, Edge]] = []
        self.rest: list[Edge | None] = [None] * len(self.positions)
        for number, position in enumerate(self.positions):
            self.rest[number] = self._rest(position)
        for position in self.positions:
            self._work_out(position)

    @property
    def here(self) -> Position:
        """The present position."""
        return self.positions[self.at]

    def stand(self, state: str) -> Edge:
        """The edge into the beginning of a state from nowhere."""
        return self._edge((state, 0), (Entry(state, ABSENT, "", self._machine.states[state].sends),))

    def aside(self, event: Event, step: str) -> Edge:
        """An edge that leads nowhere: the host issues something that is not foreseen here."""
        here = self.here
        return self._edge((here.state, here.passed), (), Seen(event, step, True, True, (), ()), blocked=True)

    def _places(self) -> Iterator[Position]:
        for state in self._machine.states.values():
            events = len(self._events[state.name])
            for index in range(events + 1):
                inside = state.thread == "foreground" and 0 < index < events
                waits = (state.thread == "foreground" and index < events) or not (state.serves or state.end)
                blocks = ALL if inside else STEPS if waits and not self.serving else NOBODY
                yield Position(state.name, index, blocks, state.end)

    def _rest(self, position: Position) -> Edge | None:
        """The way that is taken at once when the list has ended: a `done` that nobody will report."""
        if position.state == ABSENT or position.passed < len(self._events[position.state]) or self._heard("done"):
            return None
        target = dict(self._ways(position.state)).get("done")
        return self._edge((target, 0), (self._entry(target, position.state, "done"),)) if target else None

    def _work_out(self, position: Position) -> None:
        steps: dict[Event, Edge] = {}
        told: dict[str, Edge] = {}
        enter: dict[str, Edge] = {}
        for (state, index), entered in self._reach(position):
            events = self._events.get(state, [])
            if entered:
                enter.setdefault(state, self._edge((state, index), entered))
            if index < len(events):
                seen = events[index]
                event = seen.event
                edge = self._edge((state, index + 1), entered, seen, position.blocks != NOBODY)
                steps.setdefault(event, edge)
                if event[1] and "." not in event[1]:
                    steps.setdefault((event[0], "", event[2]), edge)  # for a host that cannot name the group
            for guard, target in self._ways(state):
                if self._heard(guard) and (index == len(events) or not _after_list(guard)):
                    way = (*entered, self._entry(target, state, guard))
                    told.setdefault(guard, self._edge((target, 0), way, blocked=position.blocks != NOBODY))
        self.steps.append(steps)
        self.told.append(told)
        self.enter.append(enter)

    def _reach(self, position: Position) -> Iterator[tuple[tuple[str, int], tuple[Entry, ...]]]:
        """Every (state, index) that silent guards lead to, nearest first, with the states entered on the way."""
        start = (position.state, position.passed)
        seen = {start}
        waiting: deque[tuple[tuple[str, int], tuple[Entry, ...]]] = deque([(start, ())])
        while waiting:
            (state, index), entered = waiting.popleft()
            yield (state, index), entered
            ended = index == len(self._events.get(state, ()))
            for guard, target in self._ways(state):
                silent = not self._heard(guard) and (ended or not _after_list(guard))
                if silent and (target, 0) not in seen:
                    seen.add((target, 0))
                    waiting.append(((target, 0), (*entered, self._entry(target, state, guard))))

    def _ways(self, state: str) -> tuple[tuple[str, str], ...]:
        if state == ABSENT:
            return tuple((f"received {message}", target) for message, target in self._machine.starts.items())
        return self._machine.states[state].leave

    def _entry(self, state: str, came: str, guard: str) -> Entry:
        return Entry(state, came, guard, self._machine.states[state].sends)

    def _edge(
        self, to: tuple[str, int], entered: tuple[Entry, ...], seen: Seen | None = None, blocked: bool = False
    ) -> Edge:
        position = self._index[to]
        lines = [line for entry in entered for line in _moved(self.name, entry)]
        closing: tuple[Line, ...] = ()
        behind: tuple[Line, ...] = ()
        if seen is not None:
            lines += [*_passed(self.name, to[0], seen.before), *_begun(self.name, to[0], seen)]
            closing = tuple(_ended(self.name, to[0], seen))
            behind = tuple(_passed(self.name, to[0], seen.after))
        sends = tuple(message for entry in entered for message in entry.sends)
        follows = sends or blocked or self.positions[position].blocks != NOBODY or (not seen and self.rest[position])
        names = tuple(entry.state for entry in entered)
        return Edge(position, tuple(lines), closing, behind, names, sends, not follows)


def _seen(state: State, place: Place) -> list[Seen]:
    found: list[Seen] = []
    unseen: tuple[str, ...] = ()
    for step in state.steps:
        events = step.events if step.at == place else ()
        for number, event in enumerate(events):
            found.append(Seen(event, str(step), number == 0, number == len(events) - 1, unseen, ()))
            unseen = ()
        if not events:
            unseen = (*unseen, str(step))
    if found and unseen:
        found[-1] = found[-1]._replace(after=unseen)
    return found


def _begun(machine: str, state: str, seen: Seen) -> Iterator[Line]:
    if seen.first:
        yield "step.begin", machine, {"state": state, "step": seen.step}
    if _collective(seen.event):
        yield "collective.before", machine, _fields(state, seen)


def _ended(machine: str, state: str, seen: Seen) -> Iterator[Line]:
    if _collective(seen.event):
        yield "collective.after", machine, {**_fields(state, seen), "error": ""}
    if seen.last:
        yield "step.end", machine, {"state": state, "step": seen.step, "error": ""}


def _passed(machine: str, state: str, steps: tuple[str, ...]) -> Iterator[Line]:
    for step in steps:
        yield "step.begin", machine, {"state": state, "step": step, "seen": False}
        yield "step.end", machine, {"state": state, "step": step, "seen": False, "error": ""}


def _collective(event: Event) -> bool:
    return "." in event[1]  # dp.standby is a group of a kind; without a kind it is an argument


def _fields(state: str, seen: Seen) -> dict[str, Any]:
    kind, group, verb = seen.event
    return {"state": state, "step": seen.step, "group": group, "op": f"{kind}.{verb}" if verb else kind}


def _moved(machine: str, entry: Entry) -> Iterator[Line]:
    if entry.came != ABSENT:
        yield "leave", machine, {"state": entry.came, "guard": entry.guard, "to": entry.state}
    elif entry.guard.startswith("received "):
        yield "receive", machine, {"message": entry.guard[9:]}
    yield "enter", machine, {"state": entry.state, "came": entry.came}
    for message in entry.sends:
        yield "send", machine, {"message": message, "seen": False}


def _after_list(guard: str) -> bool:
    """Whether a guard is looked at only when the list of the state has ended."""
    return guard == "done" or guard.startswith("answer ")
