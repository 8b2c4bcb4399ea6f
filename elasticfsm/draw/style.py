"""How the pictures look: one shape and line for each kind of state, a sober palette, fonts with known widths.

Every kind differs from every other by its outline (corners, thickness, dashes, doubling), so that the pictures can be
read in grey; the colours are the blue, orange and vermilion that stay apart for colour-blind eyes.
"""

from __future__ import annotations

from html import escape
from typing import Literal

from elasticfsm.protocol import State

Kind = Literal["stepping", "resting", "background", "foreground", "silent", "steps", "end"]

SANS = "Helvetica,Arial,sans-serif"
MONO = "Menlo,DejaVu Sans Mono,Consolas,monospace"

INK = "#1f2933"
QUIET = "#7b8794"
FAINT = "#9aa5b1"
BLUE = "#0b5a9d"
ORANGE = "#b45f06"
RED = "#a3341f"
PHASE = "#f5f7fa"

LOOK: dict[Kind, dict[str, str]] = {
    "stepping": {"style": "rounded,filled", "color": BLUE, "fillcolor": "#ffffff", "penwidth": "3.2"},
    "resting": {"style": "rounded,filled", "color": INK, "fillcolor": "#ffffff", "penwidth": "1.1"},
    "background": {"style": "rounded,filled,dashed", "color": BLUE, "fillcolor": "#eaf3fb", "penwidth": "1.7"},
    "foreground": {"style": "filled", "color": ORANGE, "fillcolor": "#fdf0e0", "penwidth": "2.8"},
    "silent": {"style": "filled,dashed", "color": ORANGE, "fillcolor": "#fdf0e0", "penwidth": "2.8"},
    "steps": {"style": "filled", "color": INK, "fillcolor": "#ffffff", "penwidth": "1.1"},
    "end": {"style": "rounded,filled", "color": INK, "fillcolor": "#e4e7eb", "penwidth": "1.1", "peripheries": "2"},
}

MEANS: dict[Kind, str] = {
    "stepping": "takes forward steps",
    "resting": "waits; forward steps go on",
    "background": "works beside the forward steps",
    "foreground": "works between two forward steps: they pause",
    "silent": "waits, and no forward step begins",
    "steps": "does its steps in order",
    "end": "an end",
}


def kind_of(state: State) -> Kind:
    """Which of the seven kinds a state is drawn as."""
    if state.end:
        return "end"
    if any(step.meaning.means == "agree" for step in state.steps):
        return "stepping"
    if state.thread == "background":
        return "background"
    if state.thread == "foreground":
        return "foreground"
    if state.thread == "steps":
        return "steps"
    return "resting" if state.serves else "silent"


def font(text: str, size: int = 11, color: str = INK, face: str = "", bold: bool = False) -> str:
    """A run of text in an HTML-like label; the text is escaped here and nowhere else."""
    inner = f"<B>{escape(text)}</B>" if bold else escape(text)
    named = f' FACE="{face}"' if face else ""
    return f'<FONT POINT-SIZE="{size}" COLOR="{color}"{named}>{inner}</FONT>'


def table(rows: list[str], align: str = "LEFT", padding: int = 1) -> str:
    """An HTML-like label: one row under another, without borders."""
    cells = "".join(f'<TR><TD ALIGN="{align}">{row}</TD></TR>' for row in rows)
    return f'<<TABLE BORDER="0" CELLBORDER="0" CELLSPACING="0" CELLPADDING="{padding}">{cells}</TABLE>>'
