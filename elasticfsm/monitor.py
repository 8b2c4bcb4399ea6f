"""In front of every collective: refuses one that the spec does not allow next, before it is issued.

The interpreter says which step a thread is in; the groups ask before and tell after each collective. What is allowed is
the `issues` of that step, in order, on the group that the step names. A collective outside of any step is refused, too.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import Any, Literal, NamedTuple, Protocol

from elasticfsm.errors import Refused
from elasticfsm.protocol import Step

Mode = Literal["observe", "guard"]

Fields = dict[str, Any]

POINT_TO_POINT = frozenset({"send", "recv"})  # moves data between two engines; allowed in a step that means `await`


class Record(Protocol):
    """Where events go; `Journal` is one."""

    def put(self, event: str, machine: str = "", /, **fields: object) -> None:
        """Notes an event."""

    def note(self, event: str, machine: str, fields: Mapping[str, object], /) -> None:
        """Notes an event whose fields never change: nothing is copied, for what happens many times a step."""

    def flush(self) -> None:
        """Writes what was noted."""


class Violation(NamedTuple):
    """A refused collective: who, in which state and step, on which group, what was expected and what came."""

    engine: str
    machine: str
    state: str
    step: str
    group: str
    expected: str
    got: str

    def __str__(self) -> str:
        where = f"{self.machine} in `{self.state}`, step `{self.step}`" if self.machine else "outside of any step"
        return (
            f"engine {self.engine}, {where}: refused {self.got} on {self.group}; the spec expects {self.expected}; "
            "it was not issued"
        )


class Waiting(NamedTuple):
    """A collective that was entered and not left, since when on the monitor's clock, in nanoseconds."""

    group: str
    op: str
    since: int


class _Place:
    """Where a thread is: a step, how many of its collectives it has issued, and which one follows (or none)."""

    __slots__ = ("count", "following", "issues", "label", "loops", "machine", "moves", "said", "state", "step")

    def __init__(self, machine: str, state: str, step: Step, said: dict[str, Fields]) -> None:
        meaning = step.meaning
        self.machine = machine
        self.state = state
        self.step = str(step)
        self.said = said
        self.label = f"{meaning.kind}.{step.argument}"
        self.issues = tuple(meaning.issues)
        self.loops = meaning.repeats == "layers"
        self.moves = meaning.means == "await"
        self.count = 0
        self.following = self.issues[0] if self.issues else ""

    def unfinished(self) -> bool:
        return self.count != len(self.issues) and not (self.loops and self.count == 0)


class Monitor:
    """The watch of one engine. `guard` raises `Refused` and calls `on_refused`; `observe` only journals the violation.

    `generations` says which generation a name (`active`, `standby`, `retired`) means now; the interpreter keeps it.
    """

    def __init__(
        self,
        engine: str,
        journal: Record,
        mode: Mode = "guard",
        on_refused: Callable[[Violation], None] | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.engine = engine
        self.mode: Mode = mode
        self.generations: dict[str, str] = {}
        self.violations: list[Violation] = []
        self._journal = journal
        self._on_refused = on_refused
        self._clock = clock
        self._places: dict[int, _Place] = {}
        self._entered: dict[tuple[str, str], deque[int]] = {}
        self._names: dict[str, str] = {}  # "dp.active" -> "active"
        # What the journal says of a place's own collectives, by place and operation: made once a generation, for speed
        self._said: dict[tuple[str, str, str], dict[str, Fields]] = {}
        self._attempts: dict[tuple[str, str], int] = {}  # (label, generation) of groups that were made anew

    def begin_step(self, machine: str, state: str, step: Step) -> None:
        """This thread is in a step from now on."""
        said = self._said.setdefault((machine, state, str(step)), {})
        self._places[get_ident()] = _Place(machine, state, step, said)

    def end_step(self, succeeded: bool = True) -> None:
        """This thread's step is over; raises `Refused` when it succeeded without issuing all of its collectives."""
        place = self._places.pop(get_ident(), None)
        if succeeded and place is not None and place.unfinished():
            self._refuse(place, place.label, "the end of the step")

    def before(self, label: str, op: str) -> None:
        """`op` is about to be issued on `label` ("dp.active"); raises `Refused` (mode `guard`) if it must not be."""
        place = self._places.get(get_ident())
        if place is not None and place.label == label and place.following == op:
            count, issues = place.count + 1, place.issues
            if count > len(issues):
                count = 1
            place.count = count
            place.following = issues[count] if count < len(issues) else issues[0] if place.loops else ""
        elif not (place is not None and place.moves and op in POINT_TO_POINT):
            self._refuse(place, label, op)
        entered = self._entered.get((label, op))
        if entered is None:
            entered = self._entered[label, op] = deque()
        entered.append(self._clock())
        self._journal.note("collective.before", place.machine if place else "", self._fields(place, label, op))

    def after(self, label: str, op: str, error: BaseException | None = None) -> None:
        """The wait for `op` on `label` has ended, with that error if it failed."""
        entered = self._entered.get((label, op))
        if entered:
            entered.popleft()
        place = self._places.get(get_ident())
        fields = self._fields(place, label, op)
        if error is not None:
            fields = fields | {"error": str(error)}
        self._journal.note("collective.after", place.machine if place else "", fields)

    def renewed(self, label: str, attempt: int) -> None:
        """The group of that label is another one from now on: its events say `attempt`, and are counted from 0."""
        self._attempts[label, self.generations.get(label.rpartition(".")[2], "")] = attempt
        for said in list(self._said.values()):
            said.clear()

    def waiting(self) -> list[Waiting]:
        """What was entered and not left, oldest first; any thread may ask."""
        found = [Waiting(*key, since) for key, times in list(self._entered.items()) for since in list(times)]
        return sorted(found, key=lambda one: one.since)

    def expected(self) -> str:
        """What this thread may issue next, as "op on group", or an empty string."""
        place = self._places.get(get_ident())
        op = place.following if place is not None else ""
        return f"{op} on {place.label}" if place is not None and op else ""

    def _fields(self, place: _Place | None, label: str, op: str) -> Fields:
        name = self._names.get(label)
        if name is None:
            name = self._names[label] = label.rpartition(".")[2]
        of = self.generations.get(name, "")
        if place is None:
            return self._made(label, op, of)
        found = place.said.get(op)
        if found is None or found["of"] != of or found["group"] != label:
            found = place.said[op] = {**self._made(label, op, of), "state": place.state, "step": place.step}
        return found

    def _made(self, label: str, op: str, of: str) -> Fields:
        fields: Fields = {"group": label, "op": op, "of": of, "error": ""}
        attempt = self._attempts.get((label, of))
        return fields if attempt is None else {**fields, "attempt": attempt}

    def _refuse(self, place: _Place | None, label: str, op: str) -> None:
        violation = Violation(
            self.engine,
            place.machine if place else "",
            place.state if place else "",
            place.step if place else "",
            label,
            _expectation(place),
            op,
        )
        self.violations.append(violation)
        self._journal.put("refused", violation.machine, mode=self.mode, **violation._asdict())
        self._journal.flush()
        if self.mode == "guard":
            if self._on_refused is not None:
                self._on_refused(violation)
            raise Refused(str(violation))


def _expectation(place: _Place | None) -> str:
    if place is None:
        return "no collective"
    following = place.following
    end = "" if place.unfinished() else " or the end of the step" if following else "the end of the step"
    return f"{following} on {place.label}{end}" if following else end
