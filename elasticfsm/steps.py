"""The eight meanings that a step may have, and what follows from each for checker, monitor and interpreter."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

import msgspec

from elasticfsm.language import StepMeaning, Vocabulary
from elasticfsm.reading import Document, read

SPEC = Path(__file__).parent / "spec"

COLLECTIVE = frozenset({"rendezvous", "agree", "post"})  # has a place in the order of its group
BLOCKS = frozenset({"rendezvous", "agree", "wait", "await"})  # may wait for somebody else
PROPERTIES = (
    "no_deadlock",
    "good_end",
    "commits",
    "agreement",
    "collective_order",
    "membership",
    "contracts",
    "no_use_after_destroy",
    "no_transfer_at_switch",
    "placement",
    "coverage",
    "requests_kept",
    "service_kept",
    "decided_once",
    "in_doubt",
    "terminates",
    "exactly_once",
    "one_operation",
    "no_leak",
    "wishes_met",
)
_MADE: dict[str, Vocabulary] = {}


@cache
def vocabulary(path: Path = SPEC / "steps.yaml") -> Vocabulary:
    """Loads spec/steps.yaml; raises `SpecError` when a step or fact is malformed."""
    document = read(path)
    steps = {
        name: document.convert(data, StepMeaning, ("steps", name))
        for name, data in document.data.get("steps", {}).items()
    }
    loaded: Vocabulary = document.convert({**document.data, "steps": {}}, Vocabulary, ())
    loaded.steps = steps
    for fact, name in loaded.facts.items():
        if name not in PROPERTIES:
            raise document.wrong(("facts", fact), f"expected one of {', '.join(PROPERTIES)}, found `{name}`")
    for message, fact in loaded.wishes.items():
        if fact_pattern(fact, loaded.facts) is None:
            raise document.wrong(
                ("wishes", message), f"unknown fact `{fact}`; `facts:` lists {', '.join(loaded.facts)}"
            )
    for step, meaning in steps.items():
        _check_meaning(document, step, meaning, loaded.facts)
    return loaded


def vocabulary_at(name: str) -> Vocabulary:
    """The vocabulary of that name: a path, relative to the shipped specs, or the shipped one if it is empty."""
    if name in _MADE:
        return _MADE[name]
    return vocabulary(SPEC / name) if name else vocabulary()


def made(changed: Vocabulary) -> str:
    """Gives a name to a vocabulary that stands in no file: a patch adds to one, a mutant takes something from it."""
    name = f"made:{hashlib.sha256(msgspec.json.encode(changed, order='deterministic')).hexdigest()[:16]}"
    _MADE[name] = changed
    return name


def extended(name: str, facts: dict[str, str], steps: dict[str, StepMeaning], document: Document) -> str:
    """The name of a vocabulary with more facts and steps in it, or with other ones; both as in a vocabulary file."""
    if not facts and not steps:
        return name
    known = vocabulary_at(name)
    leaks = [*known.leaks, *(fact for fact, name in facts.items() if name == "no_leak")]
    suspends = [*known.suspends, *(fact for fact, name in facts.items() if name == "terminates")]
    both = Vocabulary({**known.facts, **facts}, {**known.steps, **steps}, leaks, suspends, known.wishes)
    for step, meaning in steps.items():
        _check_meaning(document, step, meaning, both.facts)
    return made(both)


def name_beside(path: Path, vocabulary_file: str) -> str:
    """The name of a vocabulary that a protocol file gives; the same on every machine for shipped ones."""
    if not vocabulary_file or vocabulary_file in _MADE:
        return vocabulary_file
    beside = (path.parent / vocabulary_file).resolve()
    shipped = SPEC.resolve()
    return beside.relative_to(shipped).as_posix() if beside.is_relative_to(shipped) else str(beside)


def _check_meaning(document: Document, step: str, meaning: StepMeaning, facts: dict[str, str]) -> None:
    if meaning.means in COLLECTIVE and meaning.kind is None:
        raise document.wrong(
            ("steps", step), f"a step that means `{meaning.means}` needs `kind:` (world, dp, ep or eplb)"
        )
    if meaning.means == "await" and not meaning.awaits:
        raise document.wrong(
            ("steps", step), "a step that means `await` needs `awaits:`, else it would wait for nothing"
        )
    for field in ("requires", "awaits", "provides", "ends"):
        for fact in getattr(meaning, field):
            if fact_pattern(fact, facts) is None:
                place = ("steps", step, field)
                raise document.wrong(place, f"unknown fact `{fact}`; `facts:` above lists {', '.join(facts)}")


def fact_pattern(fact: str, facts: dict[str, str]) -> str | None:
    """The entry of `facts:` that a fact belongs to: `standby exists` and `{} exists` belong to `* exists`."""
    words = fact.split()
    if words[0] == "all":
        words = words[2:]
    if words[-1] == "*":
        return "*"
    if " ".join(words) in facts:
        return " ".join(words)
    starred = " ".join(["*", *words[1:]])
    return starred if starred in facts else None
