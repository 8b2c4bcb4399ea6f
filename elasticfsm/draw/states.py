"""The state diagram of one machine as dot text: phases are boxes, the main path runs straight down."""

from __future__ import annotations

import textwrap
from itertools import pairwise

import graphviz

from elasticfsm.draw import style
from elasticfsm.draw.legend import legend
from elasticfsm.draw.path import main_path
from elasticfsm.draw.style import font, table
from elasticfsm.protocol import Leave, Machine, Protocol, State


def state_diagram(protocol: Protocol, role: str) -> str:
    """The dot text of one machine; the same spec gives the same bytes."""
    machine = protocol.machines[role]
    graph = graphviz.Digraph(f"{protocol.name}_{role}", comment=f"generated from spec/{protocol.name}.yaml")
    graph.attr(rankdir="TB", newrank="true", compound="true", nodesep="0.35", ranksep="0.34", fontname=style.SANS)
    graph.attr(bgcolor="white", pad="0.15", label=_title(protocol, machine), labelloc="t", labeljust="l")
    graph.attr("node", shape="box", fontname=style.SANS, fontsize="11", margin="0.13,0.06", height="0.3", width="1.1")
    graph.attr("edge", fontname=style.SANS, fontsize="10", arrowsize="0.7", color=style.INK)
    path = main_path(machine)
    spine = [name for name, _ in path] + [path[-1][1].target] if path else []
    _skeleton(graph, machine, spine)
    for phase in _phases(machine):
        _phase(graph, protocol, machine, phase, spine)
    _ends(graph, machine, spine)
    order = list(machine.states)
    for name, state in machine.states.items():
        _edges(graph, state, [way for here, way in path if here == name], order)
    for phase in _phases(machine):
        _exit_edges(graph, machine, phase)
    return str(graph.source)


def _title(protocol: Protocol, machine: Machine) -> str:
    rows = [font(f"{protocol.name} · {machine.role}", 16, bold=True), legend(machine)]
    if machine.holds:
        rows.append(font("true in every state: " + ", ".join(machine.holds), 10, style.QUIET))
    return table([*rows, " "], padding=2)


def _phases(machine: Machine) -> list[str]:
    return list(dict.fromkeys(state.phase for state in machine.states.values() if not state.end))


def _phase(graph: graphviz.Digraph, protocol: Protocol, machine: Machine, phase: str, spine: list[str]) -> None:
    states = [state for state in machine.states.values() if state.phase == phase and not state.end]
    with graph.subgraph(name=f"cluster_{phase}") as box:
        box.attr(style="filled,rounded", color="#cbd2d9", fillcolor=style.PHASE, margin="14", labeljust="r")
        box.attr(
            label=table(
                [font(phase, 12, bold=True) + font("   " + _deadline(protocol, states[0].within), 10, style.QUIET)]
            )
        )
        for state in states:
            group = {"group": "spine"} if state.name in spine else {}
            box.node(state.name, _label(state), **style.LOOK[style.kind_of(state)], **group)
        exits = _exits(states[0])
        if exits:
            box.node(f"exits {phase}", _exit_label(exits), shape="plain", group="side")
        else:  # as wide as exits would be, so that the name of the phase has room
            box.node(f"exits {phase}", "", shape="plain", width="1.5", style="invis")
        if states[0].name in spine:
            with box.subgraph() as rank:
                rank.attr(rank="same")
                rank.edge(states[0].name, f"exits {phase}", style="invis")
        else:
            box.edge(states[-1].name, f"exits {phase}", style="invis", weight="20")


def _deadline(protocol: Protocol, within: str) -> str:
    if within == "forever":
        return "no deadline"
    return f"within {within}: {protocol.deadlines.get(within, 0):g} s" if within else ""


def _label(state: State) -> str:
    return table(_rows(state))


def _rows(state: State) -> list[str]:
    rows = [font(state.name, 12, bold=True)]
    rows += [font(str(step), 9, style.INK, style.MONO) for step in state.steps]
    return rows + [font(f"▸ {message}", 10, style.BLUE) for message in state.sends]


def _exits(state: State) -> dict[str, list[str]]:
    """The exits that a phase shares: target -> guards. The state is any of its states."""
    found: dict[str, list[str]] = {}
    for way in state.leave:
        if way.shared:
            found.setdefault(way.target, []).append(str(way.guard))
    return found


def _exit_label(exits: dict[str, list[str]]) -> str:
    """Guards in a bracket, and beside it where they lead; the port of a row is its target."""
    rows = f'<TR><TD ALIGN="LEFT" COLSPAN="2">{font("from every state here:", 9, style.QUIET)}</TD></TR>'
    for target, guards in exits.items():
        lines = '<BR ALIGN="LEFT"/>'.join(font(guard, 10, style.QUIET) for guard in guards)
        rows += f'<TR><TD ALIGN="LEFT" BALIGN="LEFT" BORDER="1" SIDES="R" COLOR="{style.FAINT}">{lines}</TD>'
        rows += f'<TD ALIGN="LEFT" PORT="{target}">{font(f"→ {target}", 10, style.QUIET)}</TD></TR>'
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="2" CELLPADDING="2">{rows}</TABLE>>'


def _ends(graph: graphviz.Digraph, machine: Machine, spine: list[str]) -> None:
    with graph.subgraph() as rank:
        rank.attr(rank="sink")
        for state in machine.states.values():
            if state.end:
                group = {"group": "spine"} if state.name in spine else {}
                rank.node(state.name, _end_label(machine, state), **style.LOOK["end"], **group)


def _end_label(machine: Machine, end: State) -> str:
    """An end also says which phases have an exit to it: lines from all of them would cross the whole picture."""
    rows = _rows(end)
    phases = [name for name in _phases(machine) if end.name in _exits(_any_state(machine, name))]
    if phases:
        words = "exit of " + ", ".join(phases)
        rows += [font(line, 9, style.QUIET) for line in textwrap.wrap(words, 26)]
    return table(rows)


def _any_state(machine: Machine, phase: str) -> State:
    return next(state for state in machine.states.values() if state.phase == phase)


def _skeleton(graph: graphviz.Digraph, machine: Machine, spine: list[str]) -> None:
    """What dot must see first, to keep the main path on the left and each of its phases below the one before."""
    graph.node(machine.first)
    _starts(graph, machine)
    heads = {machine.states[name].phase: name for name in reversed(spine) if not machine.states[name].end}
    phases = list(dict.fromkeys(machine.states[name].phase for name in spine if not machine.states[name].end))
    for above, below in pairwise(phases):
        for state in machine.states.values():
            if state.phase == above and not state.end and state.name not in spine:
                graph.edge(state.name, heads[below], style="invis", weight="0")


def _starts(graph: graphviz.Digraph, machine: Machine) -> None:
    for message, target in machine.starts.items():
        name = f"start {message}"
        graph.node(name, "", shape="circle", width="0.13", height="0.13", style="filled", fillcolor=style.INK)
        graph.edge(name, target, label=f" received {message}", weight="10")


def _edges(graph: graphviz.Digraph, state: State, main: list[Leave], order: list[str]) -> None:
    """One edge for each target, labelled with every guard that leads there."""
    targets: dict[str, list[Leave]] = {}
    for way in state.leave:
        if not way.shared:
            targets.setdefault(way.target, []).append(way)
    for target, ways in targets.items():
        label = " or ".join(str(way.guard) for way in ways)
        if any(way in main for way in ways):
            weight = (
                "100" if order.index(target) > order.index(state.name) else "1"
            )  # a way back must not bend the path
            look = {"penwidth": "1.9", "weight": weight, "fontcolor": style.INK}
        else:
            look = {"color": style.QUIET, "fontcolor": style.QUIET}
        graph.edge(state.name, target, label=f" {label} ", **look)


def _exit_edges(graph: graphviz.Digraph, machine: Machine, phase: str) -> None:
    """One line for each target of the shared exits; an end instead lists the phases that lead to it."""
    ways = [way for state in machine.states.values() for way in state.leave if not way.shared]
    floating = not any(machine.states[way.target].end for way in ways)  # then nothing else keeps the ends at the bottom
    for target in _exits(_any_state(machine, phase)):
        if machine.states[target].end:
            if floating:
                graph.edge(f"exits {phase}", target, style="invis", weight="0")
            continue
        downward = "false" if machine.states[target].phase == phase else "true"
        look = {"style": "dotted", "color": style.QUIET, "arrowsize": "0.6", "weight": "4", "constraint": downward}
        graph.edge(f"exits {phase}:{target}:e", target, **look)
