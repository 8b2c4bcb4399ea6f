"""The spec language as it is written: one struct per kind of mapping in a spec file. `protocol` gives it meaning."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

Name = Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_]*$")]
Step = str | dict[str, str]
Means = Literal["local", "rendezvous", "agree", "post", "wait", "await", "rename", "launch"]
Kind = Literal["world", "dp", "ep", "eplb"]


class State(msgspec.Struct, forbid_unknown_fields=True):
    """One state: what it sends on entering, what it does, and what ends it."""

    sends: str | list[str] = []
    background: list[Step] | None = None
    foreground: list[Step] | None = None
    steps: list[Step] | None = None
    serves: bool = True
    leave: dict[str, str] = {}


class Phase(msgspec.Struct, forbid_unknown_fields=True):
    """States that share a deadline and the exits of `leave`."""

    states: dict[str, State]
    within: str = ""
    leave: dict[str, str] = {}
    fatal: bool = False  # a step that fails in it ends its engine, on purpose: `lint` asks for no `failed`


class Machine(msgspec.Struct, forbid_unknown_fields=True):
    """What one role does: phases with states, and the ends it may reach."""

    count: Literal["1", "N", "M", "K", "E"] | Literal[1]
    phases: dict[str, Phase]
    ends: dict[str, State] = {}
    starts: dict[str, str] = {}
    inside: str = ""
    runs: list[str] = []
    runs_in: str = ""
    holds: list[str] = []


class File(msgspec.Struct, forbid_unknown_fields=True):
    """A protocol file."""

    protocol: Name
    machines: dict[str, Machine]
    groups: dict[str, list[str]]
    messages: dict[str, str]
    over: list[str] = []
    vocabulary: str = ""  # a steps file beside this one, instead of spec/steps.yaml
    kinds: dict[Kind, Literal["host", "device"]] = {}
    votes: list[str] = []
    waves: dict[str, str] = {}
    deadlines: dict[str, float] = {}


class StepMeaning(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What a step means to checker, monitor and interpreter; see the head of spec/steps.yaml."""

    means: Means
    kind: Kind | None = None
    queue: Literal["host", "device"] = "host"
    synchronises: Literal["all", "none"] = "all"
    requires: list[str] = []
    awaits: list[str] = []
    provides: list[str] = []
    ends: list[str] = []
    asks: str = ""
    answers: list[str] = []
    journal: Literal["", "write", "read"] = ""
    issues: list[str] = []
    repeats: Literal["once", "layers"] = "once"
    at: Literal["core", "worker", "eplb", "client"] = "core"


class Vocabulary(msgspec.Struct, forbid_unknown_fields=True):
    """spec/steps.yaml: every fact with the property that is refuted where it is missing, and every step.

    `leaks` are facts that must not hold any more when an operation has ended on an engine, `suspends` facts that may
    hold then only for a while: the operation is not over before they are gone. `wishes` are messages of the
    environment, each with the fact that must be able to come of it.
    """

    facts: dict[str, str]
    steps: dict[str, StepMeaning]
    leaks: list[str] = []
    suspends: list[str] = []
    wishes: dict[str, str] = {}


class Edit(msgspec.Struct, forbid_unknown_fields=True):
    """One edit of a patch at `role.state`; exactly one of the verbs is given."""

    at: str
    leave: dict[str, str] | None = None
    sends: str | list[str] | None = None
    add: Step | None = None
    drop: str | None = None
    move: str | None = None
    before: str | None = None
    after: str | None = None
    thread: Literal["background", "foreground", "steps"] | None = None
    states: dict[str, State] | None = None
    starts: dict[str, str] | None = None
    replace: str | None = None
    by: Step | None = None
    put: dict[str, str | list[str] | None] | None = None
    within: str | None = None
    serves: bool | None = None


class Under(msgspec.Struct, forbid_unknown_fields=True):
    """What may go wrong while a patch is explored; the words of `elasticfsm check`."""

    cancel: bool = False
    crashes: int = 0
    losses: int = 0
    duplicates: int = 0
    failures: int = 0
    expiry: Literal["off", "perfect", "eventual", "arbitrary"] = "off"
    restart: bool = False
    again: bool = False
    strict: bool = False
    device: Literal["concurrent", "in_order"] = "concurrent"


class Patch(msgspec.Struct, forbid_unknown_fields=True):
    """A small edit of a protocol that makes it wrong, and the property that must refute it.

    `inside` names a protocol that stands on `of` and is explored with it. `facts` and `steps` are words that only this
    patch needs, as in a vocabulary file. `after` is the public report that it is made after. Without `under` and
    `sizes` it is explored without faults, then with a cancel, at growing sizes.
    """

    patch: Name
    of: str
    says: str
    refuted: str
    edits: list[Edit]
    after: str = ""
    inside: str = ""
    facts: dict[str, str] = {}
    steps: dict[str, StepMeaning] = {}
    under: Under | None = None
    sizes: list[str] = []


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    """One rule that was tried: edits of a base or of another rule, and what the environment grants it or asks of it."""

    says: str
    edits: list[Edit] = []
    base: str = msgspec.field(name="from", default="")
    over: str = ""
    messages: dict[str, str] = {}
    restart: bool = False
    strict: bool = False


class Rules(msgspec.Struct, forbid_unknown_fields=True):
    """spec/variants/switch/rules.yaml."""

    rules: dict[str, Rule]


def schema() -> dict[str, Any]:
    """The JSON Schema of protocol files, of the vocabulary, of patches and of rules, for editors."""
    (file, vocabulary, patch, rules), components = msgspec.json.schema_components(
        [File, Vocabulary, Patch, Rules], ref_template="#/$defs/{name}"
    )
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "elasticfsm spec language",
        "anyOf": [file, vocabulary, patch, rules],
        "$defs": components,
    }
