"""The legend of a state diagram: a swatch for each kind of state that the machine has, and what the lines mean."""

from __future__ import annotations

from elasticfsm.draw import style
from elasticfsm.draw.style import LOOK, MEANS, Kind, font, kind_of
from elasticfsm.protocol import Machine

_COLUMNS = 3


def legend(machine: Machine) -> str:
    """An HTML-like table with only the kinds that occur, in a fixed order."""
    found = {kind_of(state) for state in machine.states.values()}
    cells = [_swatch(kind) + _text(_meaning(kind, machine)) for kind in LOOK if kind in found]
    cells.append(f"<TD>{font('▸', 11, style.BLUE)}</TD>" + _text("sends on entering"))
    rows = [cells[start : start + _COLUMNS] for start in range(0, len(cells), _COLUMNS)]
    body = "".join(f"<TR>{''.join(row)}</TR>" for row in rows)
    lines = "thick line: main path · thin grey: other ways · dotted: an exit shared by all states of a phase"
    body += f'<TR><TD COLSPAN="{2 * _COLUMNS}" ALIGN="LEFT">{font(lines, 10, style.QUIET)}</TD></TR>'
    return f'<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="3" CELLPADDING="1">{body}</TABLE>'


def _meaning(kind: Kind, machine: Machine) -> str:
    serving = machine.inside != "" or bool(machine.runs) or bool(machine.holds)
    return "waits" if kind == "resting" and not serving else MEANS[kind]


def _text(words: str) -> str:
    return f'<TD ALIGN="LEFT">{font(words + "   ", 10, style.QUIET)}</TD>'


def _swatch(kind: Kind) -> str:
    look = LOOK[kind]
    styles = ",".join(word.upper() for word in look["style"].split(",") if word != "filled")
    drawn = f' STYLE="{styles}"' if styles else ""
    border = round(float(look["penwidth"]))
    box = _box(f'BORDER="{border}" COLOR="{look["color"]}" BGCOLOR="{look["fillcolor"]}"{drawn}', 30, 16, "")
    if "peripheries" in look:
        box = _box(f'BORDER="1" COLOR="{look["color"]}" STYLE="ROUNDED" CELLPADDING="0" CELLSPACING="2"', 36, 22, box)
    return f"<TD>{box}</TD>"


def _box(look: str, width: int, height: int, inside: str) -> str:
    size = f'WIDTH="{width}" HEIGHT="{height}" FIXEDSIZE="TRUE"'
    return f'<TABLE CELLBORDER="0" {look} {size}><TR><TD>{inside}</TD></TR></TABLE>'
