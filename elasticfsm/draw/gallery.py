"""All pictures of a set of protocols: their texts, how they are written, and which committed ones are stale."""

from __future__ import annotations

from pathlib import Path

from elasticfsm.compile import COORDINATOR, Program, compile_protocol
from elasticfsm.draw.chart import mermaid, msc
from elasticfsm.draw.engine import engine_picture
from elasticfsm.draw.index import index
from elasticfsm.draw.render import digest, mark_of, rendered, require, svg
from elasticfsm.draw.states import state_diagram
from elasticfsm.protocol import Protocol, load, shipped

INDEX = "README.md"


def texts(specs: list[str] | None = None) -> dict[str, str]:
    """File name -> text of every picture of these protocols (names or paths; default: the shipped ones)."""
    protocols = [load(spec) for spec in specs or shipped()]
    programs = [compile_protocol(protocol) for protocol in protocols]
    found: dict[str, str] = {}
    for protocol, program in zip(protocols, programs, strict=True):
        for role in protocol.machines:
            found[f"{protocol.name}_{role}.dot"] = state_diagram(protocol, role)
        found[f"{protocol.name}.msc"] = msc(program)
        found[f"{protocol.name}.mmd"] = mermaid(program)
    if (pair := _an_engine(protocols, programs)) is not None:
        found["engine.dot"] = engine_picture(*pair)
    found[INDEX] = index(protocols, sorted(found))
    return dict(sorted(found.items()))


def write(out: Path, specs: list[str] | None = None) -> list[Path]:
    """Writes every text and, beside it, its SVG; raises `CannotDraw` before anything is written."""
    found = texts(specs)
    require(list(found))
    drawn = {str(Path(name).with_suffix(".svg")): svg(name, text) for name, text in found.items() if rendered(name)}
    out.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in sorted({**found, **drawn}.items()):
        (out / name).write_text(text, encoding="utf-8")
        written.append(out / name)
    return written


def stale(out: Path, specs: list[str] | None = None) -> list[str]:
    """What is wrong with the files of a folder, one line each; needs none of the programs that draw."""
    found = texts(specs)
    lines = []
    for name, text in found.items():
        if _content(out / name) != text:
            lines.append(f"{out / name}: {'differs from the spec' if (out / name).exists() else 'is missing'}")
        picture = out / Path(name).with_suffix(".svg")
        if rendered(name) and mark_of(_content(picture)) != digest(text):
            lines.append(f"{picture}: {'was drawn from another text' if picture.exists() else 'is missing'}")
    return lines + ([] if specs else _left_over(out, found))


def _left_over(out: Path, found: dict[str, str]) -> list[str]:
    """Files that no protocol has any more."""
    known = set(found) | {str(Path(name).with_suffix(".svg")) for name in found if rendered(name)}
    suffixes = (".dot", ".msc", ".mmd", ".svg")
    extra = sorted(path.name for path in out.glob("*") if path.suffix in suffixes and path.name not in known)
    return [f"{out / name}: belongs to no protocol; remove it" for name in extra]


def _content(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _an_engine(protocols: list[Protocol], programs: list[Program]) -> tuple[Program, str] | None:
    """The engine that is drawn: the first role of the first protocol whose engines run several machines."""
    for protocol, program in zip(protocols, programs, strict=True):
        roles = [role for role in protocol.machines if role != COORDINATOR and protocol.machines[role].runs]
        if roles:
            return program, roles[0]
    return None
