"""Facts as bits of one integer: what holds on an engine, what a step needs, gives and takes away."""

from __future__ import annotations

from collections.abc import Iterable

from elasticfsm.compile import Program
from elasticfsm.steps import fact_pattern

GROUPS = ("active", "standby", "retired")


class Facts:
    """All facts that a program can speak of, numbered."""

    def __init__(self, program: Program) -> None:
        self.names = sorted(_named(program))
        self.bits = {name: 1 << index for index, name in enumerate(self.names)}
        self.properties = {name: _property(name, program) for name in self.names}
        self._moved = {self.bits[name]: self.bits.get(_renamed(name), 0) for name in self.names}

    def mask(self, facts: Iterable[str]) -> int:
        """The bits of some facts; `SUBJECT *` is every fact about that subject."""
        mask = 0
        for fact in facts:
            if fact.endswith(" *"):
                mask |= sum(bit for name, bit in self.bits.items() if name.startswith(fact[:-1]))
            else:
                mask |= self.bits[fact]
        return mask

    def known(self, facts: Iterable[str]) -> int:
        """The bits of those of these facts that this program can speak of."""
        return sum(self.bits.get(fact, 0) for fact in facts)

    def listed(self, mask: int) -> list[str]:
        """The names of the facts in a mask."""
        return [name for name, bit in self.bits.items() if mask & bit]

    def refuted_by(self, missing: int) -> tuple[str, ...]:
        """The properties that are refuted when these facts are missing."""
        if not missing:
            return ()
        return tuple(sorted({"contracts", *(self.properties[name] for name in self.listed(missing))}))

    def switched(self, mask: int) -> int:
        """The facts after `groups.switch`: active -> retired, standby -> active; what was retired is forgotten."""
        moved = 0
        for bit, target in self._moved.items():
            if mask & bit:
                moved |= target
        return moved

    def reverted(self, mask: int) -> int:
        """The facts after a switch back: retired -> active; the other generation is standby again."""
        moved = 0
        for name, bit in self.bits.items():
            if mask & bit:
                moved |= self.bits.get(_renamed_back(name), 0)
        return moved


def _named(program: Program) -> set[str]:
    """Every fact with its argument filled in, without `all ROLE`, and each one about a group in all three names."""
    found: set[str] = set()
    for machine in program.machines.values():
        found.update(machine.holds)
        for state in machine.states.values():
            for step in state.steps:
                for field in ("requires", "awaits", "provides", "ends"):
                    found.update(strip_all(fact)[1] for fact in step.facts(field))
                if step.meaning.asks:
                    found.add(step.meaning.asks)
    found = {fact for fact in found if not fact.endswith(" *")}
    return found | {f"{group} {fact.split()[1]}" for fact in found if fact.split()[0] in GROUPS for group in GROUPS}


def strip_all(fact: str) -> tuple[str, str]:
    """Splits `all ROLE SUBJECT WORD` into role and fact; the role is empty for a fact of this engine."""
    words = fact.split()
    return (words[1], " ".join(words[2:])) if words[0] == "all" else ("", fact)


def _property(name: str, program: Program) -> str:
    pattern = fact_pattern(name, program.facts)
    return program.facts.get(pattern or "", "contracts")


def _renamed(name: str) -> str:
    subject, _, word = name.partition(" ")
    if subject not in GROUPS:
        return name
    return {"active": f"retired {word}", "standby": f"active {word}"}.get(subject, "")


def _renamed_back(name: str) -> str:
    subject, _, word = name.partition(" ")
    return {"retired": f"active {word}", "active": f"standby {word}", "standby": ""}.get(subject, name)
