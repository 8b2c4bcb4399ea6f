"""Writes the events of a scenario as a sequence chart: text for mscgen, and the same for Mermaid."""

from __future__ import annotations

from elasticfsm.compile import COORDINATOR, OUTSIDE, Program
from elasticfsm.draw import style
from elasticfsm.draw.scenario import PEERS, Event, Scenario

_FILL = {"background": "#eaf3fb", "foreground": "#fdf0e0", "steps": "#ffffff", "": "#ffffff"}
_LEGEND = (
    "rounded blue box: beside the forward steps · orange box: between two of them, which pauses them",
    "a box over several: a collective that they enter together · hexagon: a vote, full in one forward step",
    "folded corner: a message to (→) or from (←) another machine of the same engine",
)


def msc(program: Program) -> str:
    """The chart of the main path for mscgen."""
    events = _folded(Scenario(program).run())
    columns = _columns(program, events)
    ids = {column: f"c{index}" for index, column in enumerate(columns)}
    lines = [
        f"# generated from spec/{program.name}.yaml",
        "msc {",
        '  width="900", wordwraparcs="on", arcgradient="0";',
    ]
    heads = ", ".join(f'{ids[c]} [label="{_head(program, c)}"]' for c in columns)
    lines += [f"  {heads};", "  |||;"]
    lines += [f"  {_msc_line(event, ids, columns)};" for event in events]
    lines += [f'  ||| [label="{text}", textcolour="{style.QUIET}"];' for text in _LEGEND]
    return "\n".join([*lines, "}", ""])


def mermaid(program: Program) -> str:
    """The same chart for Mermaid, which GitHub draws itself."""
    events = _folded(Scenario(program).run())
    columns = _columns(program, events)
    ids = {column: f"c{index}" for index, column in enumerate(columns)}
    lines = [f"%% generated from spec/{program.name}.yaml", "sequenceDiagram"]
    lines += [f"  participant {ids[column]} as {_head(program, column)}" for column in columns]
    lines += [f"  {_mermaid_line(event, ids, columns)}" for event in events]
    return "\n".join([*lines, ""])


def _folded(events: list[Event]) -> list[Event]:
    """Consecutive events of the same kind, among the same and in the same thread, share one box."""
    found: list[Event] = []
    for event in events:
        last = found[-1] if found else None
        same = last and (last.kind, last.who, last.thread) == (event.kind, event.who, event.thread)
        if last and same and event.kind in ("step", "collective", "inside"):
            found[-1] = Event(event.kind, event.who, f"{last.text}\n{event.text}", event.thread)
        else:
            found.append(event)
    return found


def _columns(program: Program, events: list[Event]) -> list[str]:
    """Who asks, the coordinator, the engines in the order of the file, the other engines."""
    seen = dict.fromkeys(who for event in events for who in event.who)
    order = [*sorted(OUTSIDE), *(name.split(".")[1] for name in program.machines), PEERS]
    return sorted(seen, key=order.index)


def _head(program: Program, column: str) -> str:
    machine = program.machines.get(f"{program.name}.{column}")
    many = machine is not None and machine.count not in ("1", "E") and column != COORDINATOR
    return f"{column} × {machine.count}" if machine is not None and many else column


def _ends(event: Event, columns: list[str]) -> tuple[str, str]:
    """The leftmost and the rightmost column of those that take part."""
    places = sorted(columns.index(who) for who in event.who)
    return columns[places[0]], columns[places[-1]]


def _msc_line(event: Event, ids: dict[str, str], columns: list[str]) -> str:
    text = event.text.replace("\n", "\\n")
    if event.kind == "phase":
        return f'--- [label="  {text}  ", linecolour="{style.FAINT}", textcolour="{style.QUIET}"]'
    if event.kind == "message":
        source, target = (ids[who] for who in event.who)
        return f'{source}=>{target} [label="{text}", linecolour="{style.INK}"]'
    left, right = (ids[column] for column in _ends(event, columns))
    if event.kind == "inside":
        return f'{left} note {left} [label="{text}", linecolour="{style.QUIET}", textcolour="{style.QUIET}"]'
    if event.kind == "vote":
        look = f'linecolour="{style.BLUE}", textcolour="{style.BLUE}"'
        return f'{left} abox {right} [label="{text}", {look}]'
    box = "rbox" if event.thread == "background" else "box"
    line = {"background": style.BLUE, "foreground": style.ORANGE}.get(event.thread, style.INK)
    return f'{left} {box} {right} [label="{text}", linecolour="{line}", textbgcolour="{_FILL[event.thread]}"]'


def _mermaid_line(event: Event, ids: dict[str, str], columns: list[str]) -> str:
    text = event.text.replace("\n", "<br/>")
    if event.kind == "phase":
        return f"Note over {ids[columns[0]]},{ids[columns[-1]]}: {text}"
    if event.kind == "message":
        source, target = (ids[who] for who in event.who)
        return f"{source}->>{target}: {text}"
    left, right = (ids[column] for column in _ends(event, columns))
    place = left if left == right else f"{left},{right}"
    return f"Note over {place}: {text}"
