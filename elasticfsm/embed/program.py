"""The table of one protocol, read from the JSON that `elasticfsm compile` wrote."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple

from elasticfsm.errors import ElasticError

FORMAT = 1
TABLES = Path(__file__).parent.parent / "spec"

Place = Literal["client", "core", "worker", "eplb"]


class TableError(ElasticError):
    """A compiled table is missing, is not one, or was written by another version."""


class Op(NamedTuple):
    """One operation: an id that is unique per attempt, and the sizes between which it goes."""

    id: str
    old_size: int
    new_size: int


class Step(NamedTuple):
    """A step as the table has it; `events` are what a monitor at its place sees of it, as (kind, group, verb)."""

    name: str
    argument: str
    means: str
    at: str
    events: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.argument}" if self.argument else self.name


class State(NamedTuple):
    """A state: its steps, what it sends on entering, and its exits as (guard, next state)."""

    name: str
    thread: str
    serves: bool
    end: bool
    sends: tuple[str, ...]
    steps: tuple[Step, ...]
    leave: tuple[tuple[str, str], ...]


class Machine(NamedTuple):
    """What one role does: states by name, and message -> first state."""

    name: str
    first: str
    starts: dict[str, str]
    states: dict[str, State]


class Program:
    """One protocol, all roles and places; immutable. `digest` is what all ranks compare before the first step."""

    def __init__(self, table: dict[str, Any]) -> None:
        if table.get("format") != FORMAT:
            raise TableError(
                f"found a table of format {table.get('format')!r}, expected {FORMAT}; write it anew: elasticfsm compile"
            )
        self.name: str = table["name"]
        self.digest: str = table["digest"]
        self.roles: dict[str, tuple[str, ...]] = {role: tuple(names) for role, names in table["roles"].items()}
        self.started: dict[str, tuple[str, ...]] = {role: tuple(names) for role, names in table["started"].items()}
        self.groups: dict[str, tuple[str, ...]] = {name: tuple(roles) for name, roles in table["groups"].items()}
        self.local = frozenset((message, sender, receiver) for message, sender, receiver in table["local"])
        steps = table["steps"]
        self.machines = {name: _machine(name, body, steps) for name, body in table["machines"].items()}

    @staticmethod
    def load(name: str | Path) -> Program:
        """The table of that name ("vllm-0.33/scale_up"), or of that path; raises `TableError` when there is none."""
        path = _find(name)
        try:
            return Program(json.loads(path.read_text(encoding="utf-8")))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TableError(f"{path}: not a compiled table: {error}; write it anew: elasticfsm compile") from error


def _find(name: str | Path) -> Path:
    for path in (Path(name), TABLES / f"{name}.json", TABLES / "variants" / f"{name}.json"):
        if path.suffix == ".json" and path.is_file():
            return path
    raise TableError(f"no table `{name}`; write one: elasticfsm compile {name} --out FILE.json, and give its path")


def _machine(name: str, body: dict[str, Any], steps: dict[str, Any]) -> Machine:
    states = {state: _state(state, raw, steps) for state, raw in body["states"].items()}
    return Machine(name, body["first"], body["starts"], states)


def _state(name: str, raw: dict[str, Any], steps: dict[str, Any]) -> State:
    return State(
        name,
        raw["thread"],
        raw["serves"],
        raw["end"],
        tuple(raw["sends"]),
        tuple(_step(step, argument, steps[step]) for step, argument in raw["steps"]),
        tuple((guard, target) for guard, target in raw["leave"]),
    )


def _step(name: str, argument: str, meaning: dict[str, Any]) -> Step:
    means = meaning["means"]
    events: tuple[tuple[str, str, str], ...]
    if meaning["issues"]:
        group = f"{meaning['kind']}.{argument}"
        events = tuple((kind, group, verb) for kind, _, verb in (issue.partition(".") for issue in meaning["issues"]))
    elif means in ("wait", "await", "rename"):
        events = ()  # nothing is issued: seen by what comes after
    else:
        kind, _, verb = name.partition(".")
        events = ((kind, argument, verb),)
    return Step(name, argument, means, meaning["at"], events)
