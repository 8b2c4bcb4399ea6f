"""What a demo run showed, as a struct for `--json` and as text for people; `ok` is the exit code."""

from __future__ import annotations

import msgspec
from rich.console import Console
from rich.table import Table

from .dry_run import Forecast
from .gaps import Gap
from .layers import Moved
from .tokens import Wrong


class OperationReport(msgspec.Struct, kw_only=True):
    """One change of size. Seconds are of phases; `steps` are forward steps done while preparing, by engine."""

    change: str
    operation: str
    phase: str
    error: str
    preparing_s: float
    switch_s: float
    finish_s: float
    steps: dict[str, int]
    forecast: Forecast


class Report(msgspec.Struct, kw_only=True):
    """The whole run."""

    path: list[int]
    model: str
    transfer: str
    seconds: float
    sent: int
    finished: int
    lost: int
    handed_over: int
    tokens: int
    wrong: list[Wrong]
    checked: bool
    operations: list[OperationReport]
    gaps: list[Gap]
    bytes_moved: dict[str, int]
    eplb: str = ""
    layers_moved: list[Moved] = []
    rebalances_broken: int = 0
    experts_checked: int = 0
    experts_wrong: int = 0
    refused_collectives: int
    dropped: dict[str, int]
    journal: str
    journal_errors: list[str]
    errors: list[str]

    @property
    def ok(self) -> bool:
        """Lost, wrong and refused are zero, the journal is valid, and every operation completed."""
        completed = all(each.phase == "completed" for each in self.operations)
        bad = (
            self.lost
            or self.wrong
            or self.experts_wrong
            or self.refused_collectives
            or self.journal_errors
            or self.errors
        )
        return completed and self.checked and not bad


def show(report: Report, console: Console) -> None:
    """Print the report."""
    console.print()
    console.print(_numbers(report))
    console.print(_operations(report))
    console.print(_forecasts(report))
    console.print(_gaps(report))
    if report.layers_moved:
        console.print(_layers(report))
    for wrong in report.wrong[:5]:
        console.print(
            f"  wrong: request {wrong.request}, token {wrong.position}: {wrong.got}, expected {wrong.expected}"
        )
    for text in [*report.errors, *report.journal_errors][:8]:
        console.print(f"  [red]{text}[/red]", highlight=False)
    path = " -> ".join(map(str, report.path))
    verdict = "[bold green]no request lost, every token right[/]" if report.ok else "[bold red]NOT as it must be[/]"
    console.print(f"[bold]{path}[/]: {verdict}")


def _numbers(report: Report) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    wrong = len(report.wrong)
    rows = [
        ("requests", f"{report.sent} sent, {report.finished} finished, {_red(report.lost)} lost, "
                     f"{report.handed_over} handed over"),
        ("tokens", f"{report.tokens}, {_red(wrong)} wrong" if report.checked else f"{report.tokens}, not checked"),
        ("moved", ", ".join(f"{_bytes(n)} by {name}" for name, n in sorted(report.bytes_moved.items())) or "nothing"),
        ("experts", f"{report.experts_checked} slots compared with the checkpoint, {_red(report.experts_wrong)} wrong; "
                    f"{report.rebalances_broken} rebalances given up" if report.experts_checked else "not compared"),
        ("refused", f"{_red(report.refused_collectives)} collectives"),
        ("journal", f"[green]valid[/] ({report.journal})" if not report.journal_errors else "[red]not valid[/]"),
        ("run", f"{report.seconds:.0f} s, {report.model}"),
    ]  # fmt: skip
    for row in rows:
        table.add_row(*row)
    return table


def _operations(report: Report) -> Table:
    table = Table(title="operations", title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("change", "phase", "preparing s", "switch s", "finish s", "steps done while preparing"):
        table.add_column(name)
    for each in report.operations:
        steps = ", ".join(f"{engine}: {count}" for engine, count in each.steps.items())
        colour = "green" if each.phase == "completed" else "red"
        times = [f"{seconds:.2f}" for seconds in (each.preparing_s, each.switch_s, each.finish_s)]
        table.add_row(each.change, f"[{colour}]{each.phase}[/]", *times, steps)
    return table


def _forecasts(report: Report) -> Table:
    title = "dry run against the run: predicted / measured"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("change", "preparing s", "pause, steps", "moved"):
        table.add_column(name)
    for each in report.operations:
        said = each.forecast
        table.add_row(
            each.change,
            f"{said.preparing_s:.1f} / {each.preparing_s:.1f}",
            f"{said.pause_steps:.1f} / {said.measured_pause_steps:.1f}",
            f"{_bytes(said.bytes_moved)} / {_bytes(said.measured_bytes)}",
        )
    return table


def _gaps(report: Report) -> Table:
    title = "longest gap between two tokens of a stream (unit: the median step at that size)"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("phase", "engines", "seconds", "tokens", "median ms", "longest ms", "longest, steps"):
        table.add_column(name, justify="left" if name == "phase" else "right")
    for gap in report.gaps:
        table.add_row(
            gap.window,
            str(gap.size),
            f"{gap.seconds:.1f}",
            str(gap.tokens),
            f"{gap.median_ms:.1f}",
            f"{gap.longest_ms:.1f}",
            f"{gap.longest_steps:.1f}",
        )
    return table


def _layers(report: Report) -> Table:
    title = f"experts that moved (EPLB {report.eplb})"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("phase", "rebalances", "layers"):
        table.add_column(name, justify="left" if name == "phase" else "right")
    for moved in report.layers_moved:
        table.add_row(moved.window, str(moved.rebalances), str(moved.layers))
    return table


def _red(count: int) -> str:
    return f"[bold red]{count}[/]" if count else "[green]0[/]"


def _bytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"
