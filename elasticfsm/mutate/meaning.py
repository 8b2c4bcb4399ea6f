"""What a program means to the checker, as text: equal for programs that behave alike in a run."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from elasticfsm.check.move import Edge
from elasticfsm.check.world import Regime
from elasticfsm.compile import Program


def digest(program: Program) -> str:
    """Equal for programs that mean the same to the checker: names of files and of vocabularies do not count."""
    return _hash(_plain(program))


def without(program: Program, unused: set[Edge], regime: Regime) -> str:
    """The digest of what a complete run of a program comes to, if it never takes some ways out.

    These ways, the states that only they lead to, and the steps there make no difference; nor does, where no death
    excuses it, which of the waits that all ended might have lasted for ever.
    """
    plain = _plain(program)
    for name, machine in plain["machines"].items():
        for state, entry in machine["states"].items():
            entry["leave"] = [way for way in entry["leave"] if (name, state, way[0]) not in unused]
            if not regime.crashes:
                entry.pop("forever")
        if not regime.restart:  # a coordinator that is started again stands where no way has led
            machine["states"] = {state: machine["states"][state] for state in _reached(machine)}
    used = {
        step.split(":")[0]
        for machine in plain["machines"].values()
        for s in machine["states"].values()
        for step in s["steps"]
    }
    plain["steps"] = {name: step for name, step in plain["steps"].items() if name in used}
    return _hash(plain)


def _reached(machine: dict[str, Any]) -> list[str]:
    seen, ahead = set(), [machine["first"], *machine["starts"].values()]
    while ahead:
        state = ahead.pop()
        if state not in seen:
            seen.add(state)
            ahead += [target for _, target in machine["states"][state]["leave"]]
    return sorted(seen)


def _hash(plain: dict[str, Any]) -> str:
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()[:16]


def _plain(program: Program) -> dict[str, Any]:
    machines = {
        name: {
            "starts": machine.starts,
            "first": machine.first,
            "inside": machine.inside,
            "holds": sorted(machine.holds),
            "states": {
                state.name: {
                    "thread": state.thread if state.steps else "",
                    "steps": [str(step) for step in state.steps],
                    "sends": sorted(state.sends),
                    "leave": [(str(way.guard), way.target) for way in state.leave],
                    "serves": state.serves,
                    "end": state.end,
                    "forever": state.within == "forever",
                }
                for state in machine.states.values()
            },
        }
        for name, machine in program.machines.items()
    }
    return {
        "machines": machines,
        "roles": program.roles,
        "started": program.started,
        "groups": program.groups,
        "votes": sorted(program.votes),
        "waves": program.waves,
        "routes": sorted(str(route) for route in program.routes),
        "steps": {name: msgspec.to_builtins(step) for name, step in sorted(program.steps.items())},
        "facts": program.facts,
    }
