"""What is true in a test: who is a member of which generation, who entered which collective, which facts hold."""

from __future__ import annotations

from collections import Counter
from typing import Literal

from elasticfsm.protocol import Step
from elasticfsm.steps import fact_pattern, vocabulary

Field = Literal["requires", "awaits"]


class Violated(AssertionError):
    """A property of the protocol does not hold; `name` is its name, the text tells what was seen."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(f"{name}: {text}")
        self.name = name


class Meeting:
    """The k-th collective of one group: who has entered with what, and the answer that all get."""

    def __init__(self, group: str, number: int, what: str, members: tuple[str, ...]) -> None:
        self.group = group
        self.number = number
        self.what = what
        self.members = members
        self.entered: dict[str, object] = {}
        self.answer = ""

    @property
    def released(self) -> bool:
        """Whether everybody has entered."""
        return len(self.entered) == len(self.members)

    def __str__(self) -> str:
        absent = [member for member in self.members if member not in self.entered]
        return f"{self.what} ({self.group}, number {self.number}): {', '.join(absent) or 'nobody'} missing"


class Ground:
    """Groups, collectives and facts of all engines. A generation is named by its identity, OPERATION:NUMBER."""

    def __init__(self) -> None:
        self.members: dict[str, tuple[str, ...]] = {}
        self.names: dict[str, dict[str, str]] = {}  # engine -> active, standby, retired -> identity
        self.facts: dict[str, set[str]] = {}
        self.roles: dict[str, str] = {}  # of the running operation
        self.closed: set[tuple[str, str]] = set()  # (engine, identity)
        self.meetings: dict[tuple[str, int], Meeting] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def join(self, engine: str, active: str = "", facts: tuple[str, ...] = ()) -> None:
        """Adds an engine; `facts` hold from the start."""
        self.names[engine] = {"active": active} if active else {}
        self.facts[engine] = set(facts)

    def begin(self, identity: str, members: tuple[str, ...], roles: dict[str, str]) -> None:
        """An operation begins: its standby generation will have these members."""
        self.members[identity] = members
        self.roles = dict(roles)
        for engine in roles:
            self.names[engine]["standby"] = identity

    def enter(self, engine: str, step: Step, value: object = None) -> Meeting:
        """The engine enters its next collective on the group of a step; `Violated` if a peer's is another one."""
        kind, name = step.meaning.kind, step.argument
        identity = self.names[engine].get(name, "")
        members = self.members.get(identity, ())
        group = f"{kind} of {identity}"
        if engine not in members:
            raise Violated("membership", f"{engine} enters {step} but is no member of {group} {members}")
        number = self._counts[engine, group]
        self._counts[engine, group] += 1
        meeting = self.meetings.setdefault((group, number), Meeting(group, number, step.name, members))
        if meeting.what != step.name:
            raise Violated("collective_order", f"{engine} enters {step.name} where others are in {meeting}")
        meeting.entered[engine] = value
        return meeting

    def close(self, engine: str, name: str) -> None:
        """The engine destroyed or abandoned its side of a generation: what is not released there never will be."""
        identity = self.names[engine].get(name, "")
        if identity:
            self.closed.add((engine, identity))

    def broken(self, meeting: Meeting) -> bool:
        """Whether the collective can never be released, because a member closed its side."""
        identity = meeting.group.partition(" of ")[2]
        absent = set(meeting.members) - set(meeting.entered)
        return not meeting.released and any(
            (engine, identity) in self.closed for engine in absent | set(meeting.entered)
        )

    def rename(self, engine: str) -> None:
        """Active is retired, standby is active; facts move along with the name."""
        names, moves = self.names[engine], {"active": "retired", "standby": "active"}
        self.names[engine] = {moves.get(name, name): names[name] for name in ("active", "standby") if name in names}
        words = (fact.split(" ", 1) for fact in self.facts[engine] if not fact.startswith("retired "))
        self.facts[engine] = {f"{moves.get(word[0], word[0])} {word[1]}" for word in words}

    def holds(self, engine: str, fact: str) -> bool:
        """Whether a fact holds for an engine; `all ROLE FACT` is about every engine of that role."""
        words = fact.split()
        if words[0] != "all":
            return fact in self.facts[engine]
        owners = [each for each, role in self.roles.items() if words[1] in (role, "engine")]
        return all(" ".join(words[2:]) in self.facts[each] for each in owners)

    def missing(self, engine: str, step: Step, field: Field) -> list[str]:
        """The facts of a step that do not hold."""
        return [fact for fact in step.facts(field) if not self.holds(engine, fact)]

    def demand(self, engine: str, step: Step, begun: bool = False) -> None:
        """Raises `Violated` unless all that the step requires holds; one that has begun may have ended some itself."""
        own = step.facts("ends") if begun else ()
        for fact in self.missing(engine, step, "requires"):
            if fact in own:
                continue
            table = vocabulary().facts
            raise Violated(table[fact_pattern(fact, table) or ""], f"{engine} runs {step} but `{fact}` does not hold")

    def provide(self, engine: str, step: Step) -> None:
        """The step has ended: what it provides holds."""
        self.facts[engine].update(step.facts("provides"))

    def end(self, engine: str, step: Step) -> None:
        """The step begins: what it ends stops to hold."""
        for fact in step.facts("ends"):
            subject = fact.removesuffix("*")
            keep = {known for known in self.facts[engine] if known != fact}
            self.facts[engine] = {known for known in keep if not (fact.endswith("*") and known.startswith(subject))}

    def forget(self, engine: str, keep: tuple[str, ...]) -> None:
        """The operation has ended for this engine: only what its machines hold stays true."""
        self.facts[engine] &= set(keep)
