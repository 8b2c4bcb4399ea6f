"""A counterexample told in full: every micro-step with the difference that it makes, and how it ends."""

from __future__ import annotations

from typing import NamedTuple

from elasticfsm.check.replay import Plain
from elasticfsm.check.trace import Trace
from elasticfsm.check.world import World
from elasticfsm.protocol import Thread
from elasticfsm.testing.stage.act import COORDINATOR, PROCESS, Act
from elasticfsm.testing.stage.view import EngineView, View


class Told(NamedTuple):
    """One micro-step: what it changed, which properties it refutes, in which thread, who takes part, what came of it.

    `released` are the members of a collective that all have entered now, `agreed` the votes that were full.
    """

    act: Act
    changes: tuple[str, ...]
    refutes: tuple[str, ...] = ()
    thread: Thread = ""
    released: tuple[str, ...] = ()
    agreed: str = ""


class Tale(NamedTuple):
    """A path of the checker, told: `lines` is the short version, `waits` says where everybody stands at its end."""

    property: str
    steps: list[Told]
    lines: list[str]
    waits: list[str]
    stands: dict[str, dict[str, str]]  # engine -> machine -> state, at the end
    engines: list[str]


def tale(trace: Trace) -> Tale:
    """Tells a trace; raises `Untold` for a move that a stage has no micro-step for."""
    world = trace.world
    if world is None:
        raise ValueError("the trace has no world")
    plain = Plain(World(world.program, world.sizes, world.regime))
    before, told = plain.view(), []
    for state, step in trace.steps:
        act, *faults = plain.follow(world, step, state)
        after = plain.view()
        released = _released(plain.world, before, after, act)
        agreed = step.move.text.partition(": agreed ")[2] if act.verb == "leaves" else ""
        told.append(Told(act, _changes(before, after, act), step.bad, _thread(world, before, act), released, agreed))
        told += [Told(fault, ()) for fault in faults]
        before = after
    lines = trace.lines(world)
    start = next(number for number, line in enumerate(lines) if line.startswith("=>"))
    stands = {COORDINATOR: {world.program.coordinator: before.coordinator.state}} if world.operation else {}
    stands |= {name: {m: place.state for m, place in one.machines.items()} for name, one in before.engines.items()}
    return Tale(trace.property, told, lines[:start], lines[start:], stands, list(world.names))


def text(tale: Tale) -> str:
    """The whole tale: in short, then one line a micro-step with what it changes."""
    width = max((len(str(step.act)) for step in tale.steps), default=0)
    rows = ["In short:", "", *tale.lines, *tale.waits, "", f"In full ({len(tale.steps)} micro-steps):", ""]
    for number, step in enumerate(tale.steps, 1):
        refutes = f"   <- refutes {', '.join(step.refutes)}" if step.refutes else ""
        rows.append(f"{number:4}  {step.act!s:{width}}  {'; '.join(step.changes)}{refutes}".rstrip())
    return "\n".join([*rows, "", *tale.waits, ""])


def _thread(world: World, view: View, act: Act) -> Thread:
    if act.machine == PROCESS:
        return ""
    place = view.coordinator if act.who == COORDINATOR else view.engines[act.who].machines[act.machine]
    state = world.program.machines[act.machine].states.get(place.state)
    return state.thread if state is not None and act.verb != "takes" else ""


def _released(world: World, before: View, after: View, act: Act) -> tuple[str, ...]:
    """The members of the collective that this micro-step released."""
    if act.verb != "enters":
        return ()
    mine = after.engines[act.who]
    if len(mine.entered) > len(before.engines[act.who].entered):
        return ()
    others = [n for n, one in after.engines.items() if len(one.entered) < len(before.engines[n].entered)]
    return tuple(name for name in world.names if name in others or name == act.who)


def _changes(before: View, after: View, act: Act) -> tuple[str, ...]:
    """The difference that a micro-step made, the engine that moved first."""
    found: list[str] = []
    if before.coordinator.state != after.coordinator.state:
        found.append(f"{before.coordinator.state} → {after.coordinator.state}")
    names = sorted(after.engines, key=lambda name: name != act.who)
    for name in names:
        own = _engine(before.engines[name], after.engines[name], act if name == act.who else None)
        found += own if name == act.who else [f"{name}: {change}" for change in own]
    return tuple(found)


def _engine(before: EngineView, after: EngineView, act: Act | None) -> list[str]:
    found: list[str] = []
    if before.machines and not after.machines:
        return [f"says {message} (the watchdog, in its name)" for message, _ in sorted(after.said - before.said)]
    for machine, place in after.machines.items():
        old = before.machines.get(machine, place)
        if old.state != place.state:
            short = "" if act is not None and act.machine == machine else f"{machine} "
            found.append(f"{short}{old.state} → {place.state}")
        elif old.inside == "entered" and place.inside == "released":
            found.append("may leave")
    found += ["starts"] if after.runs and not before.runs else []
    found += [f"serves in the {after.active} generation"] if after.active != before.active and before.active else []
    found += [f"closes its side of the {name} generation" for name in sorted(after.closed - before.closed)]
    found += [f"+ {fact}" for fact in sorted(after.facts - before.facts)]
    found += [f"- {fact}" for fact in sorted(before.facts - after.facts)]
    found += [f"says {message}" for message, _ in sorted(after.said - before.said)]
    found += [f"{message} to it" for message in sorted({m for m, _, _ in after.mail - before.mail})]
    found += [f"{message} from {who} to it" for message, who in sorted(after.wakes - before.wakes)]
    return found
