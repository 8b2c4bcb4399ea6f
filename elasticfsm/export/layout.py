"""Numbers and names of an exported program: engines, states, facts, messages, votes, answers and collectives."""

from __future__ import annotations

import re

from elasticfsm.compile import Program, Route
from elasticfsm.errors import SpecError
from elasticfsm.protocol import Machine, Step
from elasticfsm.steps import COLLECTIVE, fact_pattern

KINDS = ("world", "dp", "ep", "eplb")
GROUPS = ("active", "standby", "retired")
BITS = 31  # of a Promela int
SLOTS = 4  # collectives that one engine may have entered at a time


class Layout:
    """Everything that has a number in the exported text. `sizes` maps each role of an engine to how many there are."""

    def __init__(self, program: Program, sizes: dict[str, int]) -> None:
        self.program = program
        self.roles = list(program.roles)
        self.engines = [role for role in self.roles for _ in range(sizes[role])]
        self.where = {role: [i for i, own in enumerate(self.engines) if own == role] for role in self.roles}
        self.machines = max(len(inside) for inside in program.roles.values())
        self.operation = bool(program.coordinator)
        self.votes = {vote: 1 << i for i, vote in enumerate(dict.fromkeys(program.votes))}
        self.answers = {answer: 1 + i for i, answer in enumerate(_answers(program))}
        self.facts = {fact: 1 << i for i, fact in enumerate(sorted(_facts(program)))}
        self.collectives = {name: 1 + i for i, name in enumerate(_collectives(program))}
        self.inbox, self.outbox = self._mail()
        self.peer_mail = sorted({(r.message, r.receiver) for r in program.routes if r.peers})
        self.launches = any(step.meaning.means == "launch" for _, _, _, step in self.boss_steps())
        for what, bits in (("facts", self.facts), ("messages to engines", self.inbox), ("replies", self.outbox)):
            if len(bits) > BITS:
                raise SpecError(f"{program.name}: {len(bits)} {what} do not fit the {BITS} bits of a Promela int")

    def members(self, generation: int) -> tuple[str, ...]:
        """The roles that are members of the old (0) or the new (1) generation."""
        named = self.program.groups.get("standby" if generation else "active", ())
        return tuple(self.roles) if named == ("engine",) else named

    def member_mask(self, generation: int) -> int:
        """Which engines are members of a generation, as bits."""
        return sum(1 << i for i, role in enumerate(self.engines) if role in self.members(generation))

    def resolve(self, role: str, step: Step, who: str = "me") -> tuple[str, str] | None:
        """When the group of a step exists on an engine of this role, and which generation that is; None: never."""
        group, (old, new) = step.argument, (role in self.members(generation) for generation in (0, 1))
        if group == "active" and old and new:
            return "1", f"switched[{who}]"
        if group == "active" and (old or new):
            return (f"!switched[{who}]", "0") if old else (f"switched[{who}]", "1")
        if group == "standby" and new:
            return f"!switched[{who}]", "1"
        return (f"switched[{who}]", "0") if group == "retired" and old else None

    def lives(self, role: str) -> list[tuple[int, str, Machine]]:
        """The machines of an engine of this role: slot, qualified name, machine."""
        return [(slot, name, self.program.machines[name]) for slot, name in enumerate(self.program.roles[role])]

    def steps(self, role: str) -> list[tuple[int, str, int, Step]]:
        """Every step of an engine of this role: slot, name of its state in the export, index in its list, step."""
        return [
            (slot, self.constant(name, state.name), index, step)
            for slot, name, machine in self.lives(role)
            for state in machine.states.values()
            for index, step in enumerate(state.steps)
        ]

    def boss_steps(self) -> list[tuple[int, str, int, Step]]:
        """Every step of the coordinator."""
        machine = self.program.machines.get(self.program.coordinator)
        states = machine.states.values() if machine else ()
        return [(0, self.constant("coordinator", s.name), i, step) for s in states for i, step in enumerate(s.steps)]

    def constant(self, machine: str, state: str) -> str:
        """The name of a state in the exported text."""
        return re.sub(r"\W", "_", f"{machine.removeprefix(self.program.name + '.')}_{state}")

    def asked_first(self, role: str) -> int:
        """What the coordinator has told an engine of this role when the operation begins: it enters its first state."""
        machine = self.program.machines.get(self.program.coordinator)
        first = machine.states[next(iter(machine.starts.values()))] if machine else None
        return sum(
            bit
            for (message, sender, receiver), bit in self.inbox.items()
            if first and sender == self.program.coordinator and message in first.sends
            if receiver in self.program.roles[role]
        )

    def mask(self, facts: tuple[str, ...]) -> int:
        """The bits of facts of this engine; `SUBJECT *` is every fact about that subject."""
        found = 0
        for fact in facts:
            if fact.endswith(" *"):
                found |= sum(bit for name, bit in self.facts.items() if name.startswith(fact[:-1]))
            elif not fact.startswith("all "):
                found |= self.facts[fact]
        return found

    def elsewhere(self, facts: tuple[str, ...]) -> list[tuple[list[int], int]]:
        """For each fact `all ROLE SUBJECT WORD`: on which engines it must hold, and its bit."""
        words = [fact.split() for fact in facts if fact.startswith("all ")]
        everybody = list(range(len(self.engines)))
        return [(self.where.get(word[1]) or everybody, self.facts[" ".join(word[2:])]) for word in words]

    def property_of(self, fact: str) -> str:
        """The property that is refuted where a fact is missing."""
        return self.program.facts.get(fact_pattern(fact, self.program.facts) or "", "contracts")

    def moved(self) -> dict[str, str]:
        """Where each fact goes at a switch; a fact about a retired group is forgotten."""
        names = {"active": "retired", "standby": "active", "retired": ""}
        moved = {}
        for fact in self.facts:
            subject, _, word = fact.partition(" ")
            target = f"{names.get(subject, subject)} {word}".strip()
            moved[fact] = target if target in self.facts else ""
        return moved

    def _mail(self) -> tuple[dict[tuple[str, str, str], int], dict[tuple[str, str], int]]:
        """Bits of messages to a machine of an engine, and of messages from one to the coordinator."""
        inbox: dict[tuple[str, str, str], int] = {}
        outbox: dict[tuple[str, str], int] = {}
        boss = self.program.coordinator
        inside = {name for names in self.program.roles.values() for name in names}
        for route in self.program.routes:
            if self._to_engine(route, inside, boss):
                inbox.setdefault((route.message, route.sender, route.receiver), 1 << len(inbox))
            elif boss and route.receiver == boss and route.sender in inside:
                outbox.setdefault((route.message, route.sender), 1 << len(outbox))
        return inbox, outbox

    @staticmethod
    def _to_engine(route: Route, inside: set[str], boss: str) -> bool:
        return not route.peers and route.receiver in inside and (route.local or (boss != "" and route.sender == boss))


def box(message: str, receiver: str) -> str:
    """The name of the array that holds a message between peers: a bit for each sender, an element for each receiver."""
    return re.sub(r"\W", "_", f"mail_{message}_{receiver}")


def _all_steps(program: Program) -> list[Step]:
    return [step for machine in program.machines.values() for state in machine.states.values() for step in state.steps]


def _answers(program: Program) -> list[str]:
    return list(dict.fromkeys(answer for step in _all_steps(program) for answer in step.meaning.answers))


def _collectives(program: Program) -> list[str]:
    return list(dict.fromkeys(step.name for step in _all_steps(program) if step.meaning.means in COLLECTIVE))


def _facts(program: Program) -> set[str]:
    """Every fact of an engine with its argument filled in; one about a group in all three names."""
    found = {fact for machine in program.machines.values() for fact in machine.holds}
    for step in _all_steps(program):
        for field in ("requires", "awaits", "provides", "ends"):
            listed = step.facts(field)
            found.update(" ".join(fact.split()[2:]) if fact.startswith("all ") else fact for fact in listed)
        found.update([step.meaning.asks] if step.meaning.asks else [])
    found = {fact for fact in found if not fact.endswith(" *")}
    return found | {f"{group} {fact.split()[1]}" for fact in found if fact.split()[0] in GROUPS for group in GROUPS}
