"""Writes refutations as files: text, sequence chart (Mermaid, mscgen, SVG), a test that replays it on the runtime."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from elasticfsm.check.chart import mermaid, msc
from elasticfsm.check.replay import Untold
from elasticfsm.check.tale import Tale, tale, text
from elasticfsm.check.trace import Trace
from elasticfsm.check.world import World
from elasticfsm.draw.render import CannotDraw, require, svg
from elasticfsm.errors import ElasticError
from elasticfsm.testing.stage import reproduce

TEST = '''"""{title}

Written by `{command}`.
It passes as long as the real machines, interpreters and monitors do what the checker has found. With a protocol that is
right (ELASTICFSM_SPEC=PROTOCOL) it fails, and says where the trace cannot be followed.
"""

import os

from elasticfsm.testing.stage import reproduce

SPEC = os.environ.get("ELASTICFSM_SPEC", {spec})  # a protocol or a patch, by name or path
SIZES = {sizes}

TRACE = """
{trace}
"""

STANDS = {stands}


def test_{name}() -> None:
    reproduce(SPEC, SIZES, {refuted}, TRACE, STANDS{deadlines})
'''


@dataclass(frozen=True)
class Case:
    """A refutation to write: what was checked (a name or a path), and the trace."""

    spec: str
    patch: bool
    trace: Trace

    @property
    def world(self) -> World:
        """The world of the trace."""
        if self.trace.world is None:
            raise ValueError("the trace has no world")
        return self.trace.world

    @property
    def sizes(self) -> str:
        """As on the command line."""
        return "+".join(str(count) for count in self.world.sizes.values())

    @property
    def stem(self) -> str:
        """What the files are called."""
        return re.sub(r"\W+", "_", f"{Path(self.spec).stem}_{self.trace.property}")

    def command(self, out: Path) -> str:
        """What writes it again."""
        spec = f"--patch {self.spec}" if self.patch else self.spec
        return f"elasticfsm check {spec} --sizes {self.sizes} --counterexample {out}"


def write(case: Case, out: Path) -> list[str]:
    """Writes the files of one refutation into a folder and says what it wrote and what it could not."""
    out.mkdir(parents=True, exist_ok=True)
    try:
        told = tale(case.trace)
    except Untold as error:
        path = out / f"{case.stem}.txt"
        path.write_text("\n".join([*case.trace.lines(case.world), ""]), encoding="utf-8")
        return [f"{path}; no chart and no test: {error}"]
    title = f"{case.spec} {case.sizes}, {case.world.regime}: {told.property}, {len(told.steps)} micro-steps"
    files = {
        f"{case.stem}.txt": f"{title}\nagain with: {case.command(out)}\n\n{text(told)}",
        f"{case.stem}.mmd": mermaid(case.world.program, told, title),
        f"{case.stem}.msc": msc(case.world.program, told, title),
        f"test_{case.stem}.py": _test(case, told, title, out),
    }
    said = []
    if doubt := _doubt(case, told):
        del files[f"test_{case.stem}.py"]
        said.append(f"{out}: no test for {told.property}, because it does not reproduce on the real objects: {doubt}")
    try:
        require([f"{case.stem}.msc"])
        files[f"{case.stem}.svg"] = svg(f"{case.stem}.msc", files[f"{case.stem}.msc"])
    except CannotDraw as error:
        said.append(f"{out / case.stem}.svg was not drawn: {error}")
    for name, content in files.items():
        (out / name).write_text(content, encoding="utf-8")
    return [*said, *(str(out / name) for name in sorted(files))]


def _doubt(case: Case, told: Tale) -> str:
    """Why the trace does not reproduce on the real objects; empty if it does. A test that fails is not written."""
    trace = "\n".join(str(step.act) for step in told.steps)
    hasty = case.world.regime.expiry != "off"
    try:
        reproduce(case.spec, case.world.sizes, told.property, trace, told.stands, deadlines=hasty)
    except ElasticError as error:
        return str(error)
    return ""


def _test(case: Case, told: Tale, title: str, out: Path) -> str:
    stands = ["{"]
    for who, machines in told.stands.items():
        inner = ", ".join(f'"{machine}": "{state}"' for machine, state in machines.items())
        stands.append(f'    "{who}": {{{inner}}},')
    spec = str(Path(case.spec).resolve()) if Path(case.spec).suffix == ".yaml" else case.spec
    return TEST.format(
        title=title,
        command=case.command(out),
        spec=json.dumps(spec),
        sizes=json.dumps(case.world.sizes),
        trace="\n".join(str(step.act) for step in told.steps),
        stands="\n".join([*stands, "}"]),
        name=case.stem,
        refuted=json.dumps(told.property),
        deadlines=", deadlines=True" if case.world.regime.expiry != "off" else "",
    )
