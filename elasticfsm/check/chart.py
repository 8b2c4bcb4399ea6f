"""A counterexample as a sequence chart: text for mscgen, and the same for Mermaid."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from elasticfsm.check.tale import Tale, Told
from elasticfsm.compile import OUTSIDE, Program
from elasticfsm.draw import style
from elasticfsm.testing.stage.act import COORDINATOR, PROCESS, Act

Kind = Literal["message", "inside", "steps", "collective", "vote", "wrong", "end"]
LOOK = {"background": ("#eaf3fb", style.BLUE), "foreground": ("#fdf0e0", style.ORANGE)}
_BEFALLS = {"loses": "lost", "repeats": "repeated"}
WRONG = ("#fbe9e7", style.RED)


class Row(NamedTuple):
    """One row: who takes part (of a message, the sender first), what is written, and in which thread."""

    kind: Kind
    who: tuple[str, ...]
    text: str
    thread: str = ""


def rows(program: Program, tale: Tale) -> list[Row]:
    """What is worth drawing; neighbours of the same kind share a box."""
    folded: list[Row] = []
    left = _left(tale)
    for row in (row for step in tale.steps for row in _rows(program, tale, step, left)):
        last = folded[-1] if folded else None
        if last and row.kind in ("steps", "inside", "collective") and last._replace(text="") == row._replace(text=""):
            folded[-1] = row._replace(text=f"{last.text}\n{row.text}")
        elif last and row.kind == last.kind == "vote" and row.text == last.text and row.who[0] not in last.who:
            folded[-1] = last._replace(who=last.who + row.who)
        else:
            folded.append(row)
    everybody = ((COORDINATOR,) if program.coordinator else ()) + tuple(tale.engines)
    folded.append(Row("wrong", everybody, f"{tale.property} is refuted"))
    for line in tale.waits:
        who, _, told = line.strip().partition(": ")
        if who in everybody:
            folded.append(Row("end", (who,), told.replace(", ", "\n").replace(" -- ", "\n")))
    return folded


def _left(tale: Tale) -> list[Act]:
    """The collectives that somebody entered and that were never released."""
    left: list[Act] = []
    for step in tale.steps:
        if step.act.verb == "enters" and step.released:
            left = [act for act in left if act.who not in step.released or act.what != step.act.what]
        elif step.act.verb == "enters":
            left.append(step.act)
    return left


def _rows(program: Program, tale: Tale, step: Told, left: list[Act]) -> Iterator[Row]:
    act = step.act
    kind: Kind = "wrong" if step.refutes else "steps"
    broken = f"\nrefutes {', '.join(step.refutes)}" if step.refutes else ""
    name = "" if act.machine.startswith(f"{program.name}.") else f"{act.machine}: "
    if act.machine == PROCESS:
        told = "dies" if act.verb == "dies" else f"{act.what} from {act.more or '?'} is {_BEFALLS[act.verb]}"
        yield Row("wrong", (act.who,), told)
    elif act.verb == "takes":
        yield from _taken(program, tale, step, name)
        if broken:
            yield Row(kind, (act.who,), f"{act.what}{broken}")
    elif act.verb == "enters" and step.released:
        said = f" → {act.more}" if act.more else ""
        yield Row("wrong" if broken else "collective", step.released, f"{act.what}{said}{broken}", step.thread)
    elif act.verb == "enters":
        if broken or act in left:
            yield Row(kind, (act.who,), f"enters {act.what}{broken}", step.thread)
    elif act.verb == "leaves" and step.agreed:
        yield Row("vote", (act.who,), f"agreed {step.agreed.partition(',')[0]}")
    elif act.verb in ("does", "fails"):
        answer = f" → {act.more}" if act.more and act.verb == "does" else ""
        failed = " fails" if act.verb == "fails" else ""
        yield Row(kind, (act.who,), f"{name}{act.what}{answer}{failed}{broken}", step.thread)


def _taken(program: Program, tale: Tale, step: Told, name: str) -> Iterator[Row]:
    """An arrow for each message that a guard looks at; what stays inside an engine is a note."""
    act = step.act
    look, _, message = act.what.rpartition(" ")
    if look not in ("received", "any", "all", "all alive"):
        if look == "" and message in ("expired", "wanted"):
            yield Row("inside", (act.who,), f"{name}{message}")
        return
    senders = program.senders(act.machine, message)
    outer = [sender for sender in senders if sender in OUTSIDE]
    if outer and len(outer) == len(senders):
        yield Row("inside", (act.who,), f"{message} from the {outer[0]}")
    elif program.coordinator in senders:
        yield Row("message", (COORDINATOR, act.who), message)
    elif act.who == COORDINATOR:
        roles = {sender.partition(".")[2] for sender in senders}
        for engine in tale.engines:
            if engine.rstrip("0123456789") in roles and act.more in ("", engine):
                yield Row("message", (engine, COORDINATOR), message)
    elif act.more:
        yield Row("message", (act.more, act.who), message)
    else:
        yield Row("inside", (act.who,), f"{name}{message}")


def msc(program: Program, tale: Tale, title: str) -> str:
    """The chart for mscgen."""
    columns = _columns(program, tale)
    ids = {column: f"c{index}" for index, column in enumerate(columns)}
    lines = [f"# {title}", "msc {", f'  width="{max(600, 230 * len(columns))}", wordwraparcs="on", arcgradient="0";']
    lines += ["  " + ", ".join(f'{ids[column]} [label="{column}"]' for column in columns) + ";", "  |||;"]
    ends = [row for row in rows(program, tale) if row.kind == "end"]
    lines += [f"  {_msc_row(row, ids, columns)};" for row in rows(program, tale) if row.kind != "end"]
    if ends:
        lines.append("  " + ", ".join(_msc_row(row, ids, columns) for row in ends) + ";")
    return "\n".join([*lines, "}", ""])


def mermaid(program: Program, tale: Tale, title: str) -> str:
    """The same chart for Mermaid."""
    columns = _columns(program, tale)
    lines = [f"%% {title}", "sequenceDiagram", *(f"  participant {column}" for column in columns)]
    for row in rows(program, tale):
        told = row.text.replace("\n", "<br/>").replace(";", ",")
        if row.kind == "message":
            lines.append(f"  {row.who[0]}->>{row.who[1]}: {told}")
        else:
            left, right = _ends(row, columns)
            lines.append(f"  Note over {left if left == right else f'{left},{right}'}: {told}")
    return "\n".join([*lines, ""])


def _columns(program: Program, tale: Tale) -> list[str]:
    return [*([COORDINATOR] if program.coordinator else []), *tale.engines]


def _ends(row: Row, columns: list[str]) -> tuple[str, str]:
    places = sorted(columns.index(who) for who in row.who)
    return columns[places[0]], columns[places[-1]]


def _msc_row(row: Row, ids: dict[str, str], columns: list[str]) -> str:
    told = row.text.replace('"', "'").replace("\n", "\\n")
    if row.kind == "message":
        return f'{ids[row.who[0]]}=>{ids[row.who[1]]} [label="{told}", linecolour="{style.INK}"]'
    left, right = (ids[column] for column in _ends(row, columns))
    if row.kind == "inside":
        return f'{left} note {left} [label="{told}", linecolour="{style.QUIET}", textcolour="{style.QUIET}"]'
    if row.kind == "vote":
        return f'{left} abox {right} [label="{told}", linecolour="{style.BLUE}", textcolour="{style.BLUE}"]'
    fill, line = WRONG if row.kind in ("wrong", "end") else LOOK.get(row.thread, ("#ffffff", style.INK))
    box = "rbox" if row.thread == "background" else "box"
    look = f'linecolour="{line}", textbgcolour="{fill}"'
    return f'{left} {box} {right} [label="{told}", {look}]'
