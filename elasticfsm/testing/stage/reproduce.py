"""Whether a refuted property is refuted on the real objects as well: what a generated test asks."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path

from elasticfsm.compile import Program, compile_protocol
from elasticfsm.errors import ElasticError
from elasticfsm.patch import FAULTY, load_patch, patched
from elasticfsm.protocol import find, load
from elasticfsm.reading import read as read_file
from elasticfsm.testing.stage.act import COORDINATOR, read
from elasticfsm.testing.stage.actors import Engine
from elasticfsm.testing.stage.laws import NEW
from elasticfsm.testing.stage.stage import Impossible, Stage

ENVIRONMENT = ("received request", "received due", "received cancel")
HOUR, PATIENCE = 3_600.0, 10 * 3_600.0  # of virtual time
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
    spec: str | Path,
    sizes: Mapping[str, int],
    refuted: str,
    trace: str,
    stands: Mapping[str, Mapping[str, str]],
    deadlines: bool = False,
) -> None:
    """Walks a trace on the real objects; raises `NotReproduced` unless it ends as told and refutes the property.

    `trace` has one micro-step a line, `stands` the state of every machine at its end. For a property that speaks of
    what never comes, the real objects then go on by themselves for a while; with `deadlines` time passes as well.
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
        said = judge(stage, refuted)
    said = said or _never(program, sizes, trace, refuted, deadlines)
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
    if name == "service_kept" and (lost := [e.name for e in stage.engines.values() if e.founder and _stopped(e)]):
        return f"{', '.join(lost)} has stopped to serve"
    switched = {"done"} if any(e.founder and e.board.generation for e in stage.engines.values() if e.alive) else set()
    if name == "agreement" and {"done", "aborted"} <= ends | switched:
        return f"the operation ended {stage.ends()}"
    if name == "commits" and stage.over() and ends != {"done"}:
        return f"the operation ended {stage.ends()}"
    stuck = not stage.rests() and not [act for act in stage.actions() if act.what not in ENVIRONMENT]
    return "nobody can move any more" if stuck and name in ("no_deadlock", "good_end") else ""


def _stopped(engine: Engine) -> bool:
    stays = engine.name in engine.stage.laws.members[NEW]
    serving = [held.seat for name, held in engine.held.items() if name.startswith("serving.")]
    return engine.alive and (engine.ended() == "failed" or (stays and any(seat.at is None for seat in serving)))


def _never(program: Program, sizes: Mapping[str, int], trace: str, name: str, deadlines: bool) -> str:
    """What does not come after the trace, however the real objects go on by themselves; empty if it comes."""
    hoped = {"good_end": _over, "commits": _committed, "service_kept": _stepped}.get(name)
    if hoped is None:
        return ""
    for seed in range(SEEDS):
        with Stage(program, sizes) as stage:
            follow(stage, trace)
            if _goes_on(stage, hoped, random.Random(seed), deadlines):
                return ""
    return f"{name}: not within {LIMIT} micro-steps, in {SEEDS} orders"


def _goes_on(stage: Stage, hoped: Callable[[Stage, int], bool], chance: random.Random, deadlines: bool) -> bool:
    """Whether what is hoped for comes."""
    before = steps(stage)
    for _ in range(LIMIT):
        if hoped(stage, before):
            return True
        actions = [act for act in stage.actions() if act.what not in ENVIRONMENT]
        if actions:
            stage.act(chance.choice(actions))
        elif deadlines and stage.now < PATIENCE:
            stage.now += HOUR
        else:
            return False
    return False


def steps(stage: Stage) -> int:
    """How many forward steps the engines have completed, all together."""
    return sum(event["event"] == "agreed" for engine in stage.engines.values() for event in engine.journal.events)


def _over(stage: Stage, before: int) -> bool:
    return stage.over() and set(stage.ends().values()) in ({"done"}, {"aborted"}, set())


def _committed(stage: Stage, before: int) -> bool:
    return stage.over() and set(stage.ends().values()) == {"done"}


def _stepped(stage: Stage, before: int) -> bool:
    for engine in stage.engines.values():  # somebody always wants something
        engine.performer.requests = max(engine.performer.requests, int(engine.founder and engine.alive))
    return steps(stage) > before
