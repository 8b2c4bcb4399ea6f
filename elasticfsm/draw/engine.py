"""One engine as a picture: its threads, which machines act in each, which groups they enter, and the device queue."""

from __future__ import annotations

from html import escape

import graphviz

from elasticfsm.compile import Program
from elasticfsm.draw import style
from elasticfsm.draw.style import font
from elasticfsm.protocol import Step

Lists = dict[str, list[Step]]  # qualified machine -> its steps in one thread

_GROUPS = ("active", "standby", "retired")
_ABOUT = {
    "main loop": "guards are looked at here, between two forward steps",
    "background thread": "works beside the forward steps",
    "EPLB worker": "one layer at a time, beside the forward steps",
    "control thread": "mail and heartbeats; may cut a group",
}


def engine_picture(program: Program, role: str) -> str:
    """The dot text of an engine of one role of an operation."""
    graph = graphviz.Digraph("engine", comment=f"generated from spec/{program.name}.yaml and what it stands on")
    graph.attr(rankdir="LR", nodesep="0.3", ranksep="1.1", fontname=style.SANS, bgcolor="white", pad="0.15")
    graph.attr(labelloc="t", labeljust="l", label=_title(program, role))
    graph.attr("node", shape="plain", fontname=style.SANS)
    graph.attr("edge", fontname=style.SANS, arrowsize="0.6")
    threads = _threads(program, role)
    for thread, lists in threads.items():
        graph.node(thread, _thread_label(thread, lists))
    with graph.subgraph(name="cluster_groups") as box:
        box.attr(style="filled,rounded", color="#cbd2d9", fillcolor=style.PHASE, margin="12", label="process groups")
        box.attr(fontsize="12")
        with box.subgraph() as column:
            column.attr(rank="same")
            for group in _GROUPS:
                column.node(group, _group_label(program, group))
    graph.node("device queue", _device_label(program))
    for thread, lists in threads.items():
        _uses(graph, thread, lists)
    for group in _GROUPS[:2]:
        for kind, queue in program.kinds.items():
            if queue == "device":
                graph.edge(f"{group}:{kind}_queue:e", "device queue:w", color=style.ORANGE, penwidth="1.6")
    return str(graph.source)


def _title(program: Program, role: str) -> str:
    first = font(f"an engine in the role {program.name} · {role}", 16, bold=True)
    lines = "blue, dashed: entered beside the forward steps · orange, thick: by the main loop, or queued on the device"
    return style.table([first, font(lines, 10, style.QUIET), " "], padding=2)


def _threads(program: Program, role: str) -> dict[str, Lists]:
    """Which steps run in which thread; an engine's own operation has the background thread, a worker one of its own."""
    found: dict[str, Lists] = {"control thread": {}, "main loop": {}, "background thread": {}, "EPLB worker": {}}
    for name in program.roles[role]:
        own = name.startswith(f"{program.name}.")
        for state in program.machines[name].states.values():
            thread = {"foreground": "main loop", "background": "background thread" if own else "EPLB worker"}
            if state.thread in thread:
                steps = found[thread[state.thread]].setdefault(name, [])
                steps += [step for step in state.steps if step not in steps]
    stepping = [name for name, steps in found["main loop"].items() if any(s.meaning.means == "agree" for s in steps)]
    found["main loop"] = {name: found["main loop"][name] for name in dict.fromkeys([*stepping, *found["main loop"]])}
    return found


def _thread_label(thread: str, lists: Lists) -> str:
    rows = f'<TR><TD ALIGN="LEFT">{font(thread, 13, bold=True)}</TD></TR>'
    rows += f'<TR><TD ALIGN="LEFT">{font(_ABOUT[thread], 10, style.QUIET)}</TD></TR>'
    for name, steps in lists.items():
        rows += f'<HR/><TR><TD ALIGN="LEFT">{font(name, 11, bold=True)}</TD></TR>'
        for step in steps:
            port = f' PORT="{escape(_port(name, step))}"'
            rows += f'<TR><TD ALIGN="LEFT"{port}>{font(str(step), 9, style.INK, style.MONO)}</TD></TR>'
    look = style.LOOK["foreground" if thread == "main loop" else "background"]
    drawn = "ROUNDED" if thread == "control thread" else "" if thread == "main loop" else "ROUNDED,DASHED"
    color = style.INK if thread == "control thread" else look["color"]
    border = {"main loop": 3, "control thread": 1}.get(thread, 2)
    return _framed(rows, f'BORDER="{border}" COLOR="{color}"' + (f' STYLE="{drawn}"' if drawn else ""))


def _framed(rows: str, look: str, spacing: int = 0) -> str:
    return f'<<TABLE {look} CELLBORDER="0" CELLSPACING="{spacing}" CELLPADDING="3">{rows}</TABLE>>'


def _group_label(program: Program, group: str) -> str:
    about = {"active": "carries the forward steps", "standby": "being prepared", "retired": "kept until retire"}[group]
    name = font(group, 12, bold=True) + font("  " + about, 10, style.QUIET)
    rows = f'<TR><TD COLSPAN="2" ALIGN="LEFT">{name}</TD></TR>'
    for kind, queue in program.kinds.items():
        cell = font(kind, 10, style.INK, style.MONO)
        rows += f'<TR><TD ALIGN="LEFT" PORT="{kind}" BORDER="1" COLOR="{style.FAINT}" WIDTH="90">{cell}</TD>'
        rows += f'<TD ALIGN="LEFT" PORT="{kind}_queue">{font(queue, 10, style.QUIET)}</TD></TR>'
    return _framed(rows, f'BORDER="1" COLOR="{style.INK}" BGCOLOR="white"', spacing=2)


def _device_label(program: Program) -> str:
    kinds = [kind for kind, queue in program.kinds.items() if queue == "device"]
    rows = [font("device queue", 12, bold=True), font("collectives of " + " and ".join(kinds), 10, style.QUIET)]
    rows += [font("of every generation meet here:", 10, style.QUIET), font("one order on all members", 10, style.QUIET)]
    cells = "".join(f'<TR><TD ALIGN="LEFT">{row}</TD></TR>' for row in rows)
    return _framed(cells, f'BORDER="2" COLOR="{style.ORANGE}"')


def _uses(graph: graphviz.Digraph, thread: str, lists: Lists) -> None:
    """An edge from every step that enters a group to the group of that kind."""
    main = thread == "main loop"
    look = {"color": style.ORANGE, "penwidth": "1.6"} if main else {"color": style.BLUE, "style": "dashed"}
    for name, steps in lists.items():
        for step in steps:
            if step.meaning.kind is not None and step.argument in _GROUPS:
                graph.edge(f"{thread}:{_port(name, step)}:e", f"{step.argument}:{step.meaning.kind}:w", **look)


def _port(machine: str, step: Step) -> str:
    return f"{machine} {step}".replace(":", "").replace(".", "_").replace(" ", "_")
