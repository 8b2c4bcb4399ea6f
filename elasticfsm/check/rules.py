"""The rules that were tried for the switch: small variants of one protocol, explored with faults, as a table."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elasticfsm.check.verdict import Refutation, Run, run
from elasticfsm.check.world import Regime, sizes_of
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.errors import SpecError
from elasticfsm.language import Rule, Rules
from elasticfsm.patch import edited
from elasticfsm.protocol import find, parse, resolve
from elasticfsm.reading import Document, read
from elasticfsm.steps import SPEC

RULES = SPEC / "variants" / "switch" / "rules.yaml"
BASE = "variants/switch/base"
SIZES = "2+1"
CRASHES = (0, 1, 2)


@dataclass(frozen=True)
class Cell:
    """What became of one rule under so many crashes."""

    rule: str
    crashes: int
    run: Run

    @property
    def verdict(self) -> str:
        """`holds`, or what goes wrong first and how many steps it takes; see `WORDS`."""
        found = self.run.refuted
        told = []
        for word, names in WORDS:
            steps = [found[name].steps for name in names if name in found]
            told += [f"{word} {min(steps)}"] if steps else []
        if not told and found:
            return f"refuted: {', '.join(sorted(found))}"
        return ", ".join(told) or ("holds" if self.run.complete else "inconclusive")

    def worst(self) -> list[Refutation]:
        """The refutations that the verdict speaks of, the worst kind only."""
        found = self.run.refuted
        for _, names in WORDS:
            told = [found[name] for name in names if name in found]
            if told:
                return told
        return list(found.values())


WORDS = (  # two sides of one decision; the old deployment blocked or ended; no way on to a good end
    ("splits", ("agreement", "decided_once")),
    ("loses the service", ("service_kept",)),
    ("strands", ("good_end",)),
)


def load_rules(path: Path = RULES) -> tuple[dict[str, Rule], Document]:
    """Reads the rules; raises `SpecError` for a malformed one, or one that builds on a rule that is not there."""
    document = read(path)
    loaded: Rules = document.convert(document.data, Rules, ())
    for name, rule in loaded.rules.items():
        if rule.base and rule.base not in loaded.rules:
            raise document.wrong(("rules", name, "from"), f"no rule `{rule.base}`; there is {', '.join(loaded.rules)}")
    return loaded.rules, document


def program_of(name: str, rules: dict[str, Rule], document: Document) -> Program:
    """The program of one rule; raises `SpecError` that names the edit which did not find its place."""
    source = read(find(BASE))
    file = parse(source)
    for part in _lineage(name, rules):
        rule = rules[part]
        file.messages.update(rule.messages)
        file.over = [rule.over] if rule.over else file.over
        edited(file, rule.edits, document, ("rules", part, "edits"))
    try:
        return compile_protocol(resolve(file, source))
    except SpecError as error:
        raise SpecError(f"{document.path}: the rule `{name}` cannot be used:\n{error}") from error


def _lineage(name: str, rules: dict[str, Rule]) -> list[str]:
    found = [name]
    while rules[found[0]].base:
        found.insert(0, rules[found[0]].base)
    return found


def regime_of(name: str, rules: dict[str, Rule], crashes: int) -> Regime:
    """Message delay, deadlines at any moment, so many deaths of anybody, and what the rule asks for."""
    lineage = [rules[part] for part in _lineage(name, rules)]
    return Regime(
        crashes=crashes,
        expiry="arbitrary",
        restart=any(rule.restart for rule in lineage),
        strict=any(rule.strict for rule in lineage),
    )


def explore_rule(
    name: str, rules: dict[str, Rule], document: Document, crashes: int, sizes: str = SIZES, limit: int | None = None
) -> Cell:
    """Explores one rule at one size with so many crashes."""
    program = program_of(name, rules, document)
    found = run(program, sizes_of(program, sizes), regime_of(name, rules, crashes), limit=limit, engine="plain")
    return Cell(name, crashes, found)
