"""What growth does to the streams: the longest gap between two tokens, beside an equal window without growth."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from ..demo.gaps import Gap
from ..demo.report import Report
from ..demo.scenario import Run, Scenario

BAR = 10.0  # median steps: the longest gap during growth, as a median of the runs


class GrowthRun(msgspec.Struct, kw_only=True):
    """One run. Gaps are in steps: the median interval between two tokens at the size before growth."""

    growth_steps: float
    still_steps: float
    switch_steps: float
    growth_s: float
    still_s: float
    steps_while_preparing: int
    lost: int


class GrowthReport(msgspec.Struct, kw_only=True):
    """All runs and their medians; `ratio` is growth over the window without growth, run by run."""

    path: list[int]
    runs: list[GrowthRun]
    growth_steps: float
    still_steps: float
    switch_steps: float
    ratio: float

    @property
    def ok(self) -> bool:
        """The bar is kept, nothing was lost, and every engine went on serving while the operation was prepared."""
        served = all(run.steps_while_preparing > 0 and not run.lost for run in self.runs)
        return served and self.growth_steps < BAR


def run(scenario: Scenario, runs: int, console: Console, say: Callable[[str], None]) -> GrowthReport:
    """Do `runs` runs of a path with one growth, one after the other; blocks. Nothing is left of any of them."""
    done = []
    for number in range(runs):
        say(f"run {number + 1} of {runs}")
        done.append(_measured(Run(scenario, console, live=False).execute()))
    return GrowthReport(
        path=list(scenario.path),
        runs=done,
        growth_steps=statistics.median(each.growth_steps for each in done),
        still_steps=statistics.median(each.still_steps for each in done),
        switch_steps=statistics.median(each.switch_steps for each in done),
        ratio=statistics.median(each.growth_steps / max(each.still_steps, 1.0) for each in done),
    )


def _measured(report: Report) -> GrowthRun:
    still, *growing = report.gaps[:4]  # steady, preparing, switch, after: the order of a path with one growth
    unit = still.median_ms
    existing = [count for count in report.operations[0].steps.values() if count]
    return GrowthRun(
        growth_steps=max(_steps(gap, unit) for gap in growing),
        still_steps=_steps(still, unit),
        switch_steps=_steps(growing[1], unit),
        growth_s=sum(gap.seconds for gap in growing),
        still_s=still.seconds,
        steps_while_preparing=min(existing, default=0),
        lost=report.lost,
    )


def _steps(gap: Gap, unit: float) -> float:
    return gap.longest_ms / unit if unit else 0.0


def show(report: GrowthReport, console: Console) -> None:
    """Print the table."""
    path = " -> ".join(map(str, report.path))
    table = Table(
        title=f"{path}: longest gap of a stream, in median steps", title_justify="left", box=None, pad_edge=False
    )
    for name in (
        "run",
        "growing",
        "not growing",
        "at the switch",
        "growing s",
        "not growing s",
        "steps while preparing",
    ):
        table.add_column(name, justify="right")
    for number, each in enumerate(report.runs, 1):
        table.add_row(
            str(number),
            f"{each.growth_steps:.1f}",
            f"{each.still_steps:.1f}",
            f"{each.switch_steps:.1f}",
            f"{each.growth_s:.1f}",
            f"{each.still_s:.1f}",
            str(each.steps_while_preparing),
        )
    median = (f"{report.growth_steps:.1f}", f"{report.still_steps:.1f}", f"{report.switch_steps:.1f}")
    table.add_row("median", *median)
    console.print(table)
    verdict = "kept" if report.ok else "[bold red]missed[/]"
    console.print(f"growing / not growing, median of the runs: {report.ratio:.2f}; bar of {BAR:g} steps: {verdict}")


def scenario(path: tuple[int, ...], model: Path, seconds: float) -> Scenario:
    """A growth under load, without the token check: `elasticfsm demo` makes that."""
    return Scenario(path=path, model=model, seconds=seconds, check=False)
