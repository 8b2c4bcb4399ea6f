"""Checks the patches of `spec/faulty`: each must be refuted by the property that it names, the sooner the better."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from rich.table import Table

from elasticfsm import language
from elasticfsm.check.plan import CANCEL, Task, tasks
from elasticfsm.check.verdict import Refutation, Run, run
from elasticfsm.check.world import CALM, Regime
from elasticfsm.compile import Program
from elasticfsm.patch import load_patch, patched

AHEAD = (5_000, 100_000)  # a run is looked at here first: most mistakes show early
LIMIT = 3_000_000
AT_ENDS = frozenset({"good_end", "terminates", "commits", "service_kept"})  # judged only when all was explored


@dataclass
class Case:
    """A patch, and its runs up to the one that refutes it."""

    patch: language.Patch
    program: Program
    runs: list[Run] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the property that it names is refuted."""
        return self.found is not None

    @property
    def found(self) -> Refutation | None:
        """The refutation that it must have."""
        return self.runs[-1].refuted.get(self.patch.refuted) if self.runs else None


def check_patch(path: Path | str, tell: Callable[[str], None] = lambda line: None) -> Case:
    """Explores a patch where it says, or at growing sizes, until its property is refuted; raises `SpecError`."""
    patch, document = load_patch(path)
    case = Case(patch, patched(patch, document))
    for task in tasks_of(patch, case.program):
        tell(f"{patch.patch} {task.sizes}, {task.regime}")
        case.runs.append(_sooner(task, patch.refuted))
        if case.ok:
            break
    return case


def _sooner(task: Task, wanted: str) -> Run:
    for limit in () if wanted in AT_ENDS else AHEAD:
        found = run(task.program, task.engines, task.regime, limit=limit, engine="plain")
        if found.complete or wanted in found.refuted:
            return found
    return run(task.program, task.engines, task.regime, limit=LIMIT)


def tasks_of(patch: language.Patch, program: Program) -> list[Task]:
    """Where a patch is explored: as it says; otherwise without faults and then with a cancel, at growing sizes."""
    roles = len(program.roles)
    sizes = patch.sizes or (["1+1", "2+1", "1+2"] if roles == 2 else ["1", "2", "3"] if roles == 1 else [])
    if patch.under is not None:
        return [Task(program, size, regime_of(patch.under)) for size in sizes]
    regimes = {task.regime for task in tasks(program, sizes[:1])}
    return [Task(program, size, regime) for regime in (CALM, CANCEL) if regime in regimes for size in sizes]


def regime_of(under: language.Under) -> Regime:
    """The regime that the words of a patch ask for."""
    words = {name: value for name, value in msgspec.structs.asdict(under).items() if name in Regime._fields}
    return Regime(**words)


def table(cases: list[Case]) -> Table:
    """One line for each patch: what it breaks, which property must refute it, and how that went."""
    found = Table(box=None, pad_edge=False)
    for column in ("bug", "base", "expected", "steps"):
        found.add_column(column, no_wrap=True, justify="right" if column == "steps" else "left")
    for column in ("where", "refuted as well", "after"):
        found.add_column(column)
    for case in cases:
        patch, last = case.patch, case.runs[-1]
        base = f"{patch.of} in {patch.inside}" if patch.inside else patch.of
        verdict = f"[green]{patch.refuted}[/]" if case.ok else f"[red]{patch.refuted} is not refuted[/]"
        others = ", ".join(sorted(set(last.refuted) - {patch.refuted}))
        steps = str(case.found.steps) if case.found else "-"
        found.add_row(patch.patch, base, verdict, steps, f"{last.sizes}, {last.regime}", others, patch.after)
    return found


def as_data(cases: list[Case]) -> list[dict[str, object]]:
    """The table for --json and for tests."""
    return [
        {
            "bug": case.patch.patch,
            "base": case.patch.of,
            "inside": case.patch.inside,
            "expected": case.patch.refuted,
            "ok": case.ok,
            "refuted": sorted(case.runs[-1].refuted),
            "steps": case.found.steps if case.found else 0,
            "lines": len(case.found.lines) if case.found else 0,
            "sizes": case.runs[-1].sizes,
            "regime": case.runs[-1].regime,
            "after": case.patch.after,
        }
        for case in cases
    ]
