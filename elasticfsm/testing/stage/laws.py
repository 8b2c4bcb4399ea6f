"""The ground under a stage: groups and facts of all engines, and which property is refuted when something is wrong.

Nothing is raised here: what is wrong is noted, and the run goes on, as it would in production.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from elasticfsm.protocol import Step
from elasticfsm.steps import fact_pattern
from elasticfsm.testing.ground import Ground, Meeting

OLD, NEW = ":0", "op:1"  # identities of the two generations


class Entry(NamedTuple):
    """A collective that an engine has entered and that was not released yet."""

    identity: str
    kind: str
    step: str
    posted: bool


class Laws(Ground):
    """A ground that notes refuted properties in `refuted`: name -> what was seen first."""

    def __init__(self, facts: Mapping[str, str]) -> None:
        super().__init__()
        self.refuted: dict[str, str] = {}
        self.pending: dict[str, list[Entry]] = {}
        self.within: dict[
            str, list[tuple[str, str]]
        ] = {}  # engine -> (identity, step) that it has entered and not left
        self.complete: set[int] = set()  # ids of meetings that were released
        self.destroyed: set[tuple[str, str]] = set()  # closed by a step that ends a group, not by a failure or a death
        self._properties = facts
        self._whats: dict[int, dict[str, str]] = {}

    def note(self, name: str, text: str) -> None:
        """A property does not hold."""
        self.refuted.setdefault(name, text)

    def short(self, facts: list[str], text: str) -> None:
        """Facts that are missing refute the contract, and the property that they stand for."""
        for fact in facts:
            self.note("contracts", f"{text} but `{fact}` does not hold")
            pattern = fact_pattern(fact, dict(self._properties)) or ""
            self.note(self._properties.get(pattern, "contracts"), f"{text} but `{fact}` does not hold")

    def require(self, engine: str, step: Step) -> None:
        """The facts that a step requires are looked at."""
        self.short(self.missing(engine, step, "requires"), f"{engine} runs {step}")

    def identity(self, engine: str, name: str) -> str:
        """Which generation a name means on an engine; empty if it is no member of one."""
        found = self.names[engine].get(name, "")
        return found if engine in self.members.get(found, ()) else ""

    def meet(self, engine: str, step: Step, value: object, posted: bool) -> Meeting:
        """The engine enters a collective; it is released when all members have entered the same and none has closed."""
        kind, identity = step.meaning.kind or "", self.identity(engine, step.argument)
        group = f"{kind} of {identity or 'no group of ' + engine}"
        members = self.members.get(identity, (engine, "nobody"))
        if not identity:
            self.note("membership", f"{engine} enters {step} but is no member of such a group")
        number = self._counts[engine, group]
        self._counts[engine, group] += 1
        meeting = self.meetings.setdefault((group, number), Meeting(group, number, step.name, members))
        whats = self._whats.setdefault(id(meeting), {})
        self._entering(engine, step, identity, whats)
        whats[engine] = step.name
        meeting.entered[engine] = value
        if not posted:
            self.within.setdefault(engine, []).append((identity, step.name))
        if (engine, identity) not in self.closed:
            self.pending[engine].append(Entry(identity, kind, step.name, posted))
        self._release(identity, kind)
        return meeting

    def left(self, engine: str, step: Step, identity: str) -> None:
        """The engine is in a collective no longer."""
        self.within[engine].remove((identity, step.name))

    def outsider(self, engine: str, step: Step) -> None:
        """A step that needs a group fails: is the engine a member of one at all?"""
        if step.meaning.kind and not self.identity(engine, step.argument):
            self.note("membership", f"{engine} cannot do {step}: it is no member of such a group")

    def _release(self, identity: str, kind: str) -> None:
        """Releases the oldest collective of a group as long as all members are in the same one."""
        members = self.members.get(identity, ())
        while members:  # a member that closed its side has entered nothing; what a dead one contributed counts
            oldest = [
                next((e for e in self.pending[member] if (e.identity, e.kind) == (identity, kind)), None)
                for member in members
            ]
            if None in oldest or len({entry.step for entry in oldest if entry}) > 1:
                return
            for member, entry in zip(members, oldest, strict=True):
                if entry is not None:
                    self.pending[member].remove(entry)
            group = f"{kind} of {identity}"
            number = min(
                n for (name, n), one in self.meetings.items() if name == group and id(one) not in self.complete
            )
            self.complete.add(id(self.meetings[group, number]))

    def released(self, meeting: Meeting) -> bool:
        """Whether a collective was released."""
        return id(meeting) in self.complete

    def broken(self, meeting: Meeting) -> bool:
        """Whether a collective can never be released, because a member closed its side."""
        identity = meeting.group.partition(" of ")[2]
        return not self.released(meeting) and any((engine, identity) in self.closed for engine in meeting.members)

    def close(self, engine: str, name: str) -> None:
        """The engine destroys or abandons its side of a generation."""
        identity = self.identity(engine, name)
        if identity:
            self.closed.add((engine, identity))
            self.pending[engine] = [entry for entry in self.pending[engine] if entry.identity != identity]

    def leave(self, engine: str) -> None:
        """The engine stops: whoever waits for it notices."""
        self.closed |= {(engine, identity) for identity in self.members}
        self.pending[engine] = []

    def bury(self, engine: str) -> None:
        """The engine dies: its side of everything is closed, and only what it has contributed goes on."""
        self.closed |= {(engine, identity) for identity in self.members}
        if not self.pending[engine]:
            self.facts[engine] = set()

    def destroy(self, engine: str, name: str) -> None:
        """A step that ends a group: nobody may use a generation that serves after its end."""
        identity = self.identity(engine, name)
        if identity and name != "standby":
            users = [other for other in self.members[identity] if other != engine and self._uses(other, identity)]
            if any(entry.identity == identity for entry in self.pending[engine]) or users:
                self.note("no_use_after_destroy", f"{engine} destroys {name}, which {users or engine} still uses")
        self.close(engine, name)
        self.destroyed.add((engine, identity))

    def switch(self, engine: str, busy: bool) -> None:
        """Active is retired, standby is active; `busy`: another thread of the engine is inside a list."""
        if busy:
            self.note("no_transfer_at_switch", f"{engine} switches while another of its threads works")
        self.rename(engine)

    def _uses(self, engine: str, identity: str) -> bool:
        inside = any(entry.identity == identity for entry in self.pending[engine])
        inside = inside or any(place == identity for place, _ in self.within.get(engine, ()))
        return inside or (self.names[engine].get("active") == identity and "active joined" in self.facts[engine])

    def _entering(self, engine: str, step: Step, identity: str, whats: dict[str, str]) -> None:
        others = {name for other, name in whats.items() if other != engine}
        if others - {step.name}:
            self.note("collective_order", f"{engine} enters {step} where others are in {', '.join(sorted(others))}")
        members = self.members.get(identity, ())
        if step.argument != "standby" and any((o, identity) in self.destroyed for o in members if o != engine):
            self.note("no_use_after_destroy", f"{engine} enters {step}, but a member has destroyed it")
        if step.argument == "active":
            for other in members:
                there = [*((e.identity, e.step) for e in self.pending[other]), *self.within.get(other, ())]
                if other != engine and any(name == step.name and place != identity for place, name in there):
                    self.note("membership", f"{engine} and {other} enter {step} on different generations")
