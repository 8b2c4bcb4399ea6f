"""In front of every step of somebody else's engine: notes it, and in mode `guard` refuses what the table forbids.

The host says what it is about to do (`before`), that it has done it (`after`), which state its own machine is in
(`enter`) and what it heard (`told`). Nothing here blocks, and nothing but `Refused` is raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Literal

from elasticfsm import errors
from elasticfsm.embed.program import Op, Place, Program
from elasticfsm.embed.track import ABSENT, ALL, NOBODY, Edge, Event, Line, Track

Mode = Literal["observe", "guard"]
Sink = Callable[[tuple[Line, ...]], None]  # what one call adds to the journal; `Recorder.put` is one

_BY_ITSELF = frozenset({"done", "wanted", "unwanted"})  # guards that no host needs to report


class Refused(errors.Refused):
    """A step that the table does not allow now; in mode `guard` it was not issued."""

    def __init__(self, who: str, state: str, expected: list[str], got: str) -> None:
        self.who = who
        self.state = state
        self.expected = expected
        self.got = got
        allowed = ", ".join(expected) or "nothing"
        super().__init__(f"{who}: in `{state}` the spec allows {allowed}; found {got}")


class Monitor:
    """The watch of one engine, in one role of one operation; `after` is the previous one, whose other machines go on.

    `hears`: the guards that the host reports by `told`; None means all that need a report. Any thread may call; two
    threads must not report steps of the same machine at the same time.
    """

    def __init__(
        self,
        program: Program,
        role: str,
        place: Place,
        rank: int,
        op: Op,
        *,
        mode: Mode = "observe",
        sink: Sink | None = None,
        on_refused: Callable[[Refused], None] | None = None,
        hears: Collection[str] | None = None,
        previous: Monitor | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.program, self.role, self.rank, self.op = program, role, rank, op
        self.mode: Mode = mode
        self.refusals: list[Refused] = []
        self._sink = sink
        self._on_refused = on_refused
        self._clock = clock
        self._hears = hears
        self._lately: set[str] = (
            set()
        )  # states that the host's own machine came to since the host last said where it is
        self._entered: dict[Event, tuple[float, Track, Edge]] = {}
        self._tracks = [self._track(name, place) for name in program.roles[role]]
        self._by_name = {track.name: track for track in self._tracks}
        self._owners: dict[Event, list[Track]] = {}
        for track in self._tracks:
            for event in {event for steps in track.steps for event in steps}:
                self._owners.setdefault(event, []).append(track)
        self._blocker: Track | None = None
        started = set(program.started[role])
        for track in self._tracks:
            if (previous is None or not self._take_over(track, previous)) and track.name in started:
                self._follow(track, track.stand(program.machines[track.name].first))

    # -- what the host says -------------------------------------------------------------------------------------

    def before(self, kind: str, group: str = "", verb: str = "") -> None:
        """This is about to be issued; if it must not be, raises `Refused` (mode `guard`) or records it (`observe`)."""
        event = (kind, group, verb)
        blocker = self._blocker
        for track in self._owners.get(event, ()):
            edge = track.steps[track.at].get(event)
            if edge is not None and (blocker is None or not _holds_up(blocker, track)):
                if edge.plain and not edge.entered:
                    track.at = edge.to
                    if self._sink is not None:
                        self._sink(edge.lines)
                else:
                    self._follow(track, edge)
                self._entered[event] = (self._clock(), track, edge)
                return
        self._refuse(event)

    def after(self, kind: str, group: str = "", verb: str = "", error: str | None = None) -> None:
        """The same has ended, with that error if it failed."""
        event = (kind, group, verb)
        entered = self._entered.pop(event, None)
        if entered is None:
            return
        _, track, edge = entered
        if self._sink is not None:
            self._sink((*edge.closing, *edge.behind) if error is None else _failed(edge.closing, error))
        if error is None and not track.lost:
            rest = track.rest[track.at]
            if rest is not None:
                self._follow(track, rest)
        elif error is not None and (failed := track.told[track.at].get("failed")) is not None:
            self._follow(track, failed)

    def enter(self, state: str) -> bool:
        """The host's own machine is in this state now; False, and a refusal on record, if no way leads there."""
        own = self._tracks[0]
        lately, self._lately = self._lately, set()
        if not own.lost and (own.here.state == state or state in lately):
            return True
        edge = own.enter[own.at].get(state)
        allowed = edge is not None or own.lost or own.here.state == ABSENT
        if not allowed:
            self._record(own, f"state {state}")
        own.lost = state not in self.program.machines[own.name].states
        if not own.lost:
            self._follow(own, edge or own.stand(state))
        return allowed

    def told(self, guard: str) -> bool:
        """The host heard this ("received commit", "agreed pause"); the first machine that waits for it takes it."""
        everybody = guard.startswith("agreed ")
        taken = False
        for track in self._tracks:
            edge = track.told[track.at].get(guard)
            if edge is not None and not track.lost:
                if edge.plain and not track.mail:
                    track.at = edge.to
                    if self._sink is not None:
                        self._sink(edge.lines)
                else:
                    self._follow(track, edge)
                taken = True
                if not everybody:
                    break
        return taken

    # -- what the host may ask ----------------------------------------------------------------------------------

    def expected(self) -> list[str]:
        """What may be issued next, as texts."""
        blocker = self._blocker
        tracks = [track for track in self._tracks if blocker is None or not _holds_up(blocker, track)]
        events = {event for track in tracks for event in track.steps[track.at]}
        return sorted({_text(event) for event in events if event[1] or (event[0], event[2]) not in _named(events)})

    def waiting(self) -> tuple[str, float] | None:
        """What was entered first and not left, and since when on the monitor's clock; any thread may ask."""
        entered = list(self._entered.items())
        if not entered:
            return None
        event, (since, *_) = min(entered, key=lambda item: item[1][0])
        return _text(event), since

    @property
    def state(self) -> str:
        """The state of the host's own machine, or `absent`."""
        return self._tracks[0].here.state

    @property
    def states(self) -> dict[str, str]:
        """The state of every machine of this engine."""
        return {track.name: track.here.state for track in self._tracks}

    @property
    def ended(self) -> bool:
        """Whether the host's own machine has reached an end."""
        return self._tracks[0].here.end

    # -- inside -------------------------------------------------------------------------------------------------

    def _track(self, name: str, place: Place) -> Track:
        local = {message for message, _, receiver in self.program.local if receiver == name}
        reported = self._hears

        def heard(guard: str) -> bool:
            if guard.startswith("received ") and guard[9:] in local:
                return True
            return guard in reported if reported is not None else guard not in _BY_ITSELF

        return Track(self.program.machines[name], place, heard)

    def _take_over(self, track: Track, previous: Monitor) -> bool:
        before = previous._by_name.get(track.name)
        if before is None or track is self._tracks[0]:
            return False
        track.at, track.lost, track.mail = before.at, before.lost, before.mail
        return True

    def _follow(self, track: Track, edge: Edge | None) -> None:
        """Takes an edge, and what follows from it at once: lists that are empty, messages within the engine."""
        while edge is not None:
            track.at = edge.to
            if track is self._tracks[0]:
                self._lately.update(edge.entered)
            if self._sink is not None and edge.lines:
                self._sink(edge.lines)
            if track.positions[edge.to].blocks != NOBODY:
                self._blocker = track
            elif self._blocker is track:
                self._blocker = None
            for message in edge.sends:
                self._send(track, message)
            fresh = track.here.passed == 0
            edge = (track.rest[track.at] or self._from_mail(track)) if fresh else None

    def _from_mail(self, track: Track) -> Edge | None:
        for message in sorted(track.mail):
            edge = track.told[track.at].get(f"received {message}")
            if edge is not None:
                track.mail.discard(message)
                return edge
        return None

    def _send(self, track: Track, message: str) -> None:
        """A message to a machine of the same engine arrives at once, or stays until that machine waits for it."""
        for receiver in self._tracks:
            if (message, track.name, receiver.name) in self.program.local:
                edge = receiver.told[receiver.at].get(f"received {message}")
                if edge is None:
                    receiver.mail.add(message)
                else:
                    self._follow(receiver, edge)

    def _refuse(self, event: Event) -> None:
        """Raises in mode `guard`; in `observe` says it once and goes on noting what the host does."""
        owners = self._owners.get(event, ())
        astray = next((track for track in owners if track.lost), None)
        if astray is not None:
            self._unforeseen(astray, event)
            return
        track = self._blocker or (owners[0] if owners else self._tracks[0])
        refusal = self._record(track, _text(event))
        if self.mode == "guard":
            if self._on_refused is not None:
                self._on_refused(refusal)
            raise refusal
        if track is self._tracks[0]:
            track.lost = True  # it is said once; the next state that the host enters finds it again
            self._blocker = None if self._blocker is track else self._blocker
        self._unforeseen(track, event)

    def _unforeseen(self, track: Track, event: Event) -> None:
        """Notes a step that is issued although the table has no place for it."""
        edge = track.aside(event, _text(event))
        self._entered[event] = (self._clock(), track, edge)
        if self._sink is not None:
            self._sink(edge.lines)

    def _record(self, track: Track, got: str) -> Refused:
        refusal = Refused(f"rank {self.rank}, {track.name}", track.here.state, self.expected(), got)
        self.refusals.append(refusal)
        if self._sink is not None:
            name, _, group = got.partition(" on ")
            expected = ", ".join(refusal.expected) or "nothing"
            where = {"mode": self.mode, "state": refusal.state, "step": "none", "group": group or "no group"}
            self._sink((("refused", track.name, {**where, "expected": expected, "got": name}),))
        return refusal


def _holds_up(blocker: Track, track: Track) -> bool:
    return blocker is not track and (blocker.here.blocks == ALL or track.serving)


def _failed(closing: tuple[Line, ...], error: str) -> tuple[Line, ...]:
    return tuple((event, machine, {**fields, "error": error}) for event, machine, fields in closing)


def _named(events: Collection[Event]) -> set[tuple[str, str]]:
    return {(kind, verb) for kind, group, verb in events if group}


def _text(event: Event) -> str:
    kind, group, verb = event
    name = f"{kind}.{verb}" if verb else kind
    return f"{name} on {group}" if group else name
