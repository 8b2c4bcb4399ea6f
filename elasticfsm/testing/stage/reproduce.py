"""Whether a refuted property is refuted on the real objects as well: what a generated test asks."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from elasticfsm.compile import Program, compile_protocol
from elasticfsm.errors import ElasticError
from elasticfsm.patch import FAULTY, load_patch, patched
from elasticfsm.protocol import find, load
from elasticfsm.reading import read as read_file
from elasticfsm.testing.stage.act import COORDINATOR, read
from elasticfsm.testing.stage.stage import Impossible, Stage

ENVIRONMENT = ("received request", "received due", "received cancel")
LIMIT, SEEDS = 4_000, 3  # micro-steps and orders after which an end that does not come is taken as one that never comes


class NotReproduced(ElasticError, AssertionError):
    """The real objects do not do what the trace says, or the property is not refuted by it."""

    exit_code = 1


def program_of(spec: str | Path) -> Program:
    """The program of a protocol or a patch, by name or path; raises `SpecError`."""
    shipped = FAULTY / f"{spec}.yaml"
    path = shipped if shipped.exists() else find(str(spec))
    if "patch" in read_file(path).data:
        return patched(*load_patch(path))
    return compile_protocol(load(path))


def reproduce(
    spec: str | Path, sizes: Mapping[str, int], refuted: str, trace: str, stands: Mapping[str, Mapping[str, str]]
) -> None:
    """Walks a trace on the real objects; raises `NotReproduced` unless it ends as told and refutes the property.

    `trace` has one micro-step a line, `stands` the state of every machine at its end.
    """
    program = program_of(spec)
    if list(sizes) != list(program.roles):
        raise NotReproduced(f"{spec} has the roles {', '.join(program.roles)}, the trace {', '.join(sizes)}")
    with Stage(program, sizes) as stage:
        follow(stage, trace)
        found = standing(stage)
        wrong = [
            f"{who}: {machine} stands in {found.get(who, {}).get(machine)}, the trace says {state}"
            for who, machines in stands.items()
            for machine, state in machines.items()
            if found.get(who, {}).get(machine) != state
        ]
        if wrong:
            raise NotReproduced("\n".join(["at the end of the trace", *wrong]))
        said = judge(stage, refuted) or _never(program, sizes, trace, refuted)
    if not said:
        raise NotReproduced(f"the trace was followed to its end, and {refuted} holds there")


def follow(stage: Stage, trace: str) -> None:
    """Does the micro-steps of a trace; raises `NotReproduced` where one is impossible."""
    lines = [line.strip() for line in trace.splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        try:
            stage.act(read(line))
        except Impossible as error:
            raise NotReproduced(f"micro-step {number} of {len(lines)} cannot be done:\n{error}") from error


def standing(stage: Stage) -> dict[str, dict[str, str]]:
    """Where every machine stands: actor -> machine -> state."""
    found = {}
    for actor in stage.actors():
        found[actor.name] = {name: held.seat.state for name, held in actor.held.items()}
        if actor.name != COORDINATOR and (end := stage.engines[actor.name].ended()):
            found[actor.name][stage.engines[actor.name].own] = end
    return found


def judge(stage: Stage, name: str) -> str:
    """What refutes a property on a stage as it stands, in words; empty if nothing does."""
    stage.look_at_facts()
    if name in stage.laws.refuted:
        return stage.laws.refuted[name]
    ends = {end for end in stage.ends().values() if end}
    if name == "agreement" and {"done", "aborted"} <= ends:
        return f"the operation ended {stage.ends()}"
    if name == "commits" and stage.over() and ends != {"done"}:
        return f"the operation ended {stage.ends()}"
    stuck = not stage.rests() and not [act for act in stage.actions() if act.what not in ENVIRONMENT]
    return "nobody can move any more" if stuck and name in ("no_deadlock", "good_end") else ""


def _never(program: Program, sizes: Mapping[str, int], trace: str, name: str) -> str:
    """Whether no end, or no good one, comes after the trace, however the real objects go on by themselves."""
    if name not in ("good_end", "commits"):
        return ""
    for seed in range(SEEDS):
        with Stage(program, sizes) as stage:
            follow(stage, trace)
            chance = random.Random(seed)
            for _ in range(LIMIT):
                actions = [act for act in stage.actions() if act.what not in ENVIRONMENT]
                if stage.over() or not actions:
                    break
                stage.act(chance.choice(actions))
            if stage.over() and (name == "good_end" or set(stage.ends().values()) == {"done"}):
                return ""
    return f"in {SEEDS} orders of {LIMIT} micro-steps no {'end' if name == 'good_end' else 'commit'} came"
