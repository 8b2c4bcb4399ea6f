"""One machine of the table as a monitor follows it: positions in lists of steps, and what may come next in each.

A host reports some guards (messages that it received, votes that it saw agreed) and is silent about the others. Those
may have been taken at any moment, `done` only at the end of the list; so what may come next is what any state
offers that is reached from here by silent guards. All of it is worked out once, when the track is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from elasticfsm.embed.program import Machine, Place

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


class Edge(NamedTuple):
    """Where something leads: the position, and what the journal says of it. `plain`: nothing else follows from it.

    `sends` are the messages of the states that were entered on the way; `closing` is the line when the step has ended.
    """

    to: int
    lines: tuple[Line, ...]
    closing: tuple[Line, ...]
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
        self._events = {
            state.name: [(event, str(step)) for step in state.steps if step.at == place for event in step.events]
            for state in machine.states.values()
        }
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
                event, step = events[index]
                both = _begin_and_end(self.name, event, state, step)
                edge = self._edge((state, index + 1), entered, both, position.blocks != NOBODY)
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
        self, to: tuple[str, int], entered: tuple[Entry, ...], step: tuple[Line, ...] = (), blocked: bool = False
    ) -> Edge:
        position = self._index[to]
        lines = [line for entry in entered for line in _moved(self.name, entry)]
        sends = tuple(message for entry in entered for message in entry.sends)
        follows = sends or blocked or self.positions[position].blocks != NOBODY or (not step and self.rest[position])
        return Edge(position, (*lines, *step[:1]), step[1:], sends, not follows)


def _begin_and_end(machine: str, event: Event, state: str, step: str) -> tuple[Line, Line]:
    kind, group, verb = event
    if "." not in group:  # an argument; dp.standby is a group of a kind
        fields: dict[str, Any] = {"state": state, "step": step}
        return ("step.begin", machine, fields), ("step.end", machine, {**fields, "error": ""})
    fields = {"state": state, "step": step, "group": group, "op": f"{kind}.{verb}" if verb else kind}
    return ("collective.before", machine, fields), ("collective.after", machine, {**fields, "error": ""})


def _moved(machine: str, entry: Entry) -> Iterator[Line]:
    if entry.came != ABSENT:
        yield "leave", machine, {"state": entry.came, "guard": entry.guard, "to": entry.state}
    elif entry.guard.startswith("received "):
        yield "receive", machine, {"message": entry.guard[9:]}
    yield "enter", machine, {"state": entry.state, "came": entry.came}


def _after_list(guard: str) -> bool:
    """Whether a guard is looked at only when the list of the state has ended."""
    return guard == "done" or guard.startswith("answer ")
