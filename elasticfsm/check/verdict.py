"""One run of the checker and what it found, property by property."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from elasticfsm.check.coverage import fired
from elasticfsm.check.engine import explored
from elasticfsm.check.explore import Graph
from elasticfsm.check.facts import Facts, strip_all
from elasticfsm.check.liveness import blocked, stranded, uncommitted
from elasticfsm.check.move import Edge
from elasticfsm.check.trace import Trace, trace_to
from elasticfsm.check.wishes import unmet
from elasticfsm.check.world import CALM, Regime, World
from elasticfsm.compile import Program


@dataclass
class Refutation:
    """A refuted property and the shortest trace that shows it (among those explored, if the run was reduced)."""

    property: str
    lines: list[str]
    steps: int
    note: str = ""
    trace: Trace | None = None


@dataclass
class Run:
    """One protocol at one size under one regime."""

    protocol: str
    sizes: str
    regime: str
    states: int
    transitions: int
    seconds: float
    reduced: bool
    complete: bool
    properties: tuple[str, ...]
    refuted: dict[str, Refutation] = field(default_factory=dict)
    edges: set[Edge] = field(default_factory=set)
    states_by_end: dict[int, int] = field(default_factory=dict)

    def verdict(self, name: str) -> str:
        """`refuted`, `holds`, or `inconclusive` if the run was cut short."""
        if name in self.refuted:
            return "refuted"
        return "holds" if self.complete else "inconclusive"


def run(
    program: Program,
    sizes: dict[str, int],
    regime: Regime,
    reduced: bool = True,
    limit: int | None = None,
    progress: Callable[[int], None] | None = None,
    engine: str = "auto",
    keep: bool = False,
    enough: int | None = None,
) -> Run:
    """Explores one world and judges every property that applies to it; `engine` is one of `ENGINES`.

    `keep` leaves the traces of refutations in the result, for counterexamples; they hold on to the whole world.
    `enough` ends the run after so many states if something is refuted by then: not all that is wrong is found.
    """
    began = time.perf_counter()
    graph = explored(World(program, sizes, regime), reduced, limit, progress, engine, enough)
    found = Run(
        protocol=program.name,
        sizes="+".join(map(str, sizes.values())),
        regime=str(regime),
        states=len(graph.states),
        transitions=graph.transitions,
        seconds=0.0,
        reduced=reduced,
        complete=graph.complete,
        properties=applicable(program, regime),
        edges=fired(graph),
    )
    for name, (place, transition) in graph.refuted.items():
        trace = trace_to(graph, name, place, transition)
        found.refuted[name] = Refutation(name, trace.lines(graph.world), len(trace.steps), trace=trace)
    if graph.world.operation and graph.complete:
        _judge_ends(graph, found, regime)
    _judge_wishes(graph, found, regime)
    for ends in graph.ends.values():
        found.states_by_end[ends] = found.states_by_end.get(ends, 0) + 1
    for refutation in () if keep else found.refuted.values():
        refutation.trace = None
    found.seconds = time.perf_counter() - began
    return found


def _judge_wishes(graph: Graph, found: Run, regime: Regime) -> None:
    wrong = unmet(graph) if graph.complete and regime == CALM else None
    if wrong is not None:
        place, message, fact = wrong
        trace = trace_to(graph, "wishes_met", place)
        note = f"from here no `{message}` can lead to `{fact}`"
        told = [*trace.lines(graph.world), f"   {note}"]
        found.refuted["wishes_met"] = Refutation("wishes_met", told, len(trace.steps), note, trace)


def _judge_ends(graph: Graph, found: Run, regime: Regime) -> None:
    lost = stranded(graph)
    if lost is not None:
        place, environment = lost
        trace = trace_to(graph, "good_end", place)
        note = f"from here no end can be reached ({environment} environment)"
        for name in ("good_end", "terminates"):  # an end that cannot be reached is not reached, however fair the run
            told = [*trace.lines(graph.world), f"   {note}"]
            found.refuted[name] = Refutation(name, told, len(trace.steps), note, trace)
    if regime.faults:
        place_or_none = blocked(graph)
        if place_or_none is not None and "service_kept" not in found.refuted:
            trace = trace_to(graph, "service_kept", place_or_none)
            note = "from here no forward step is completed any more"
            told = [*trace.lines(graph.world), f"   {note}"]
            found.refuted["service_kept"] = Refutation("service_kept", told, len(trace.steps), note, trace)
    if regime != CALM:
        return
    wrong = uncommitted(graph)
    if wrong is not None:
        trace = trace_to(graph, "commits", max(wrong, 0))
        note = "no run ends as done" if wrong < 0 else "nobody refused, failed or cancelled, and still it is not done"
        found.refuted["commits"] = Refutation(
            "commits", [*trace.lines(graph.world), f"   {note}"], len(trace.steps), note, trace
        )


def applicable(program: Program, regime: Regime) -> tuple[str, ...]:
    """The properties that this program can refute under this regime: no verdict on what it has no words for."""
    waits = regime.crashes or regime.losses or regime.expiry != "off"
    names = [] if waits else ["no_deadlock"]
    if program.coordinator:
        names += ["good_end", "agreement"]
        names += ["commits"] if regime == CALM else []
        names += ["one_operation"] if regime.again else []
        names += ["no_leak"] if program.leaks else []
        names += ["service_kept", "decided_once", "in_doubt"] if regime.faults else []
    names += ["collective_order", "membership", "contracts"]
    names += ["wishes_met"] if program.wishes and regime == CALM else []
    used = _asked(program)
    renames = any(step.means == "rename" for step in program.steps.values())
    for name in ("no_use_after_destroy", "no_transfer_at_switch", "placement", "coverage", "requests_kept"):
        if name in used and (name != "no_transfer_at_switch" or renames):
            names.append(name)
    return tuple(names)


def _asked(program: Program) -> set[str]:
    """The properties of the facts that some step or machine of this program needs."""
    facts = Facts(program)
    needed = {fact for machine in program.machines.values() for fact in machine.holds}
    for machine in program.machines.values():
        for step in (step for state in machine.states.values() for step in state.steps):
            needed.update(strip_all(fact)[1] for fact in (*step.facts("requires"), *step.facts("awaits")))
    return {facts.properties[fact] for fact in needed}
