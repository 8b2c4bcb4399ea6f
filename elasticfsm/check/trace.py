"""A counterexample in words: one line an event, a completed collective on one line, what is plain is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from elasticfsm.check.coordinator import BossMove
from elasticfsm.check.explore import Graph
from elasticfsm.check.move import Move
from elasticfsm.check.transition import BOSS, Transition
from elasticfsm.check.world import ENTERED, OUT, Local, State, World, ended


@dataclass
class Line:
    """One line: who, what, and the text after it."""

    who: list[str]
    what: str


@dataclass
class Trace:
    """A path through the graph as concrete transitions, and where it ends."""

    property: str
    steps: list[tuple[State, Transition]] = field(default_factory=list)
    last: State = ()
    world: World | None = None

    def lines(self, world: World) -> list[str]:
        """The trace in words."""
        told = [f"{', '.join(line.who)}: {line.what}" for line in _fold(_events(world, self.steps))]
        return [*told, *_verdict(world, self)]


def trace_to(graph: Graph, name: str, place: int, transition: Transition | None = None) -> Trace:
    """The shortest path to a state of the graph, with the engines' names kept apart although symmetry merged them."""
    path = [place]
    while graph.parents[path[-1]] >= 0:
        path.append(graph.parents[path[-1]])
    trace = Trace(name, last=graph.world.initial(), world=graph.world)
    _settle(graph, trace)
    for number in reversed(path[:-1]):
        _walk(graph, trace, graph.states[number])
        _settle(graph, trace)
    if transition is not None:
        _walk(graph, trace, graph.canonical(transition.target), name)
    return trace


def step_to(graph: Graph, state: State, goal: State, move: int = 0, said: str = "", name: str = "") -> Transition:
    """The transition that leads to a state of the graph, from one that symmetry has not sorted.

    `move` and `said` choose one of several (the move by its `id`), `name` one that refutes this property.
    """
    return next(
        step
        for step in graph.successors.all(state)
        if graph.canonical(step.target) == goal
        and (not name or name in step.bad)
        and (not move or (id(step.move), step.said) == (move, said))
    )


def settle(graph: Graph, state: State) -> Iterator[Transition]:
    """What the reduction passes over in a state, one by one."""
    yield from graph.successors.settle(state) if graph.reduced else ()


def heard(graph: Graph, state: State) -> State:
    """The state without messages that nobody can take any more, as the states of the graph are."""
    return graph.successors.heard_mail(state) if graph.reduced else state


def _walk(graph: Graph, trace: Trace, goal: State, name: str = "") -> None:
    """Takes the transition that leads to a state of the graph, and that refutes a property if one is named."""
    taken = step_to(graph, trace.last, goal, name=name)
    trace.steps.append((trace.last, taken))
    trace.last = heard(graph, taken.target)


def _settle(graph: Graph, trace: Trace) -> None:
    for step in settle(graph, trace.last):
        trace.steps.append((trace.last, step))
        trace.last = step.target


def _events(world: World, steps: list[tuple[State, Transition]]) -> list[Line]:
    lines: list[Line] = []
    for state, step in steps:
        who = "coordinator" if step.who == BOSS else world.names[step.who]
        move = step.move
        if isinstance(move, BossMove):
            if not move.text.startswith("done"):
                lines.append(Line([who], move.text))
        elif move.verb == "enter":
            lines.extend(_entered(world, state, step, move, who))
        elif move.verb == "leave":
            agreed = move.text.partition(": agreed ")[2]
            if agreed:
                lines.append(Line([who], f"agreed {agreed}"))
        elif step.bad or not move.text.startswith("done ->"):
            lines.append(Line([who], _with_thread(world, state, step, move)))
    return lines


def _with_thread(world: World, state: State, step: Transition, move: Move) -> str:
    machine = world.machines[world.locals[state[step.who + 1]].role][move.machine]
    name = "" if world.operation and move.machine == 0 else f"{machine.name}: "
    broken = f"   <- refutes {', '.join(step.bad)}" if step.bad else ""
    return f"{name}{move.text}{broken}"


def _entered(world: World, state: State, step: Transition, move: Move, who: str) -> list[Line]:
    """One line when the last member enters; nothing before, unless something is wrong with entering."""
    generation, kind, table = move.enters or (0, 0, None)
    after = world.locals[step.target[step.who + 1]]
    mine = [entry for entry in after.pending if (entry.generation, entry.kind) == (generation, kind)]
    broken = f"   <- refutes {', '.join(step.bad)}" if step.bad else ""
    if mine and table is not None:
        return [Line([who], f"enters {table.text}{broken}")] if broken else []
    said = f" = {step.said}" if step.said else ""
    members = [world.names[other] for other in world.members[generation]]
    return [Line(members, f"all in {move.text}{said}{broken}")]


def _fold(lines: list[Line]) -> list[Line]:
    """Joins neighbours: the same event at several engines, and several events of one engine."""
    folded: list[Line] = []
    for line in lines:
        last = folded[-1] if folded else None
        if last and last.what == line.what and not set(last.who) & set(line.who):
            last.who = last.who + line.who
        elif last and last.who == line.who and "refutes" not in last.what and len(last.what) + len(line.what) < 90:
            last.what = f"{last.what}; {line.what}"
        else:
            folded.append(Line(list(line.who), line.what))
    return folded


def _verdict(world: World, trace: Trace) -> list[str]:
    """How the end of the trace looks: who stands where, and who waits for whom."""
    told = [f"=> {trace.property} is refuted:"]
    boss, table = world.bosses[trace.last[0]], world.tables.coordinator
    if table is not None and (boss.down or boss.stand is not None):
        told.append(f"   coordinator: {'dead' if boss.stand is None else table.states[boss.stand.state].name}")
    for who, name in enumerate(world.names):
        local = world.locals[trace.last[who + 1]]
        told.append(f"   {name}: {stands(world, local)}{_waits(world, trace.last, who)}")
    return told


def stands(world: World, local: Local) -> str:
    """Where the machines of an engine stand, in words."""
    if local.dead:
        return "dead"
    words = []
    for machine, stand in enumerate(local.stands):
        state = world.state_of(local, machine)
        if stand is not None and state is not None:
            short = world.machines[local.role][machine].name.split(".")[0]
            words.append(f"{short} {state.name}{'' if ended(state, stand) or stand.inside == OUT else '*'}")
    return ", ".join(words) or "not started"


def _waits(world: World, state: State, who: int) -> str:
    local = world.locals[state[who + 1]]
    told = []
    for machine, stand in enumerate(local.stands):
        step = world.step_of(local, machine)
        if stand is None or step is None or stand.inside != ENTERED:
            continue
        places = [entry for entry in local.pending if entry.machine == machine]
        missing = [
            world.names[other]
            for entry in places
            for other in world.members[entry.generation]
            if not _same(world.locals[state[other + 1]], entry.generation, entry.kind, entry.step)
        ]
        told.append(f" -- waits in {step.text}" + (f" for {', '.join(missing)}" if missing else ""))
    return "".join(told)


def _same(local: Local, generation: int, kind: int, step: str) -> bool:
    return any((entry.generation, entry.kind, entry.step) == (generation, kind, step) for entry in local.pending)
