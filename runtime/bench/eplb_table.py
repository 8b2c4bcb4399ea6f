"""The tables that `elasticfsm bench eplb` prints."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from .eplb import CaseReport, EplbReport, Figures


def show(report: EplbReport, console: Console) -> None:
    """Print one table of time and balance, one of movement, and the bars that are missed."""
    names = [each.policy for each in report.cases[0].policies] if report.cases else []
    console.print(f"{report.machine}, numpy {report.numpy}, one thread, median of {report.repeats}, seed {report.seed}")
    console.print(_speed(report.cases, names))
    console.print(_movement(report.cases, names))
    for text in report.missed:
        console.print(f"[red]missed[/]: {text}", highlight=False)
    if not report.missed:
        console.print("[green]bounded reaches every bar[/]")


def _speed(cases: list[CaseReport], names: list[str]) -> Table:
    table = _table("run time in ms; mean / busiest rank: before (stay), after, the best possible, and the share of it")
    for name in [*names, "deepseek/bounded", "stay", *names, "best", "bounded/best"]:
        table.add_column(name, justify="right", no_wrap=True)
    for case in cases:
        mine, theirs = case.figures("bounded"), case.figures("deepseek")
        cells = [f"{each.ms:.1f}" for each in case.policies]
        cells.append(f"{theirs.ms / mine.ms:.1f}" if theirs is not None and mine is not None else "")
        cells.append(f"{case.stay:.3f}" if case.stay else "")
        cells += [f"{each.balance:.3f}" for each in case.policies]
        table.add_row(case.case, *cells, f"{case.balance_bound:.3f}", f"{mine.of_balance:.3f}" if mine else "")
    return table


def _movement(cases: list[CaseReport], names: list[str]) -> Table:
    table = _table("experts that cross ranks: rows, times the least (drift: percent of all slots), and GB")
    others = [f"{name} relabelled" for name in names if name != "bounded"][-2:]
    for name in ["least", *names, *others]:
        table.add_column(name, justify="right", no_wrap=True)
    for case in cases:
        cells = [_moved(each) for each in case.policies]
        matched = [str(each.relabelled) for each in case.policies if f"{each.policy} relabelled" in others]
        table.add_row(case.case, str(case.rows_bound), *cells, *matched)
    return table


def _moved(figures: Figures) -> str:
    ratio = f"x{figures.of_rows:.2f}" if figures.of_rows else f"{100 * figures.of_slots:.1f}%"
    return f"{figures.rows}  {ratio}  {figures.gigabytes:.1f}"


def _table(title: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("case", no_wrap=True)
    return table
