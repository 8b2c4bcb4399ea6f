"""The compiled table of a protocol: plain JSON, the format that other people's engines read (`elasticfsm.embed`)."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from elasticfsm.compile import Program
from elasticfsm.language import StepMeaning
from elasticfsm.protocol import Machine, State

FORMAT = 1


def table(program: Program) -> dict[str, Any]:
    """Everything of a program that a monitor or a machine needs, and the digest over it; the same on every machine."""
    body: dict[str, Any] = {
        "format": FORMAT,
        "name": program.name,
        "roles": {role: list(inside) for role, inside in program.roles.items()},
        "started": {role: list(names) for role, names in program.started.items()},
        "groups": {name: list(roles) for name, roles in program.groups.items()},
        "votes": list(program.votes),
        "deadlines": program.deadlines,
        "local": sorted([r.message, r.sender, r.receiver] for r in program.routes if r.local),
        "steps": {name: _step(meaning) for name, meaning in sorted(program.steps.items())},
        "machines": {name: _machine(machine) for name, machine in program.machines.items()},
    }
    return {"digest": digest(body), **body}


def digest(body: dict[str, Any]) -> str:
    """SHA-256 of a table without its digest, shortened to 16 digits: what all ranks of an operation must have equal."""
    plain = json.dumps({key: value for key, value in body.items() if key != "digest"}, sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def encode(program: Program) -> str:
    """The table as JSON text with a line per state, so that a change of the spec is readable in a diff."""
    found = table(program)
    machines = found.pop("machines")
    head = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in found.items() if key != "steps"]
    steps = _lines(found["steps"], "  ")
    bodies = []
    for name, machine in machines.items():
        states = _lines(machine["states"], "    ")
        rest = json.dumps({key: value for key, value in machine.items() if key != "states"})[1:-1]
        bodies.append(f'  {json.dumps(name)}: {{{rest}, "states": {{\n{states}\n  }}}}')
    parts = [*head, f' "steps": {{\n{steps}\n }}', ' "machines": {\n' + ",\n".join(bodies) + "\n }"]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _lines(mapping: dict[str, Any], indent: str) -> str:
    return ",\n".join(f"{indent}{json.dumps(key)}: {json.dumps(value)}" for key, value in mapping.items())


def _step(meaning: StepMeaning) -> dict[str, Any]:
    return {"means": meaning.means, "kind": meaning.kind or "", "issues": meaning.issues, "at": meaning.at}


def _machine(machine: Machine) -> dict[str, Any]:
    return {
        "first": machine.first,
        "starts": machine.starts,
        "states": {name: _state(state) for name, state in machine.states.items()},
    }


def _state(state: State) -> dict[str, Any]:
    return {
        "phase": state.phase,
        "thread": state.thread,
        "serves": state.serves,
        "end": state.end,
        "sends": list(state.sends),
        "steps": [[step.name, step.argument] for step in state.steps],
        "leave": [[str(way.guard), way.target] for way in state.leave],
    }
