"""The figures of `elasticfsm bench check` as tables."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from elasticfsm.bench.checker import Report


def show(report: Report, console: Console) -> None:
    """Prints one table for each kind of figure."""
    console.print(_for_all(report))
    console.print(_verdicts(report))
    if report.races:
        console.print(_races(report))
    console.print(_reaches(report))
    console.print(_oracle(report) if report.oracle else "SPIN or gcc is missing: tools/system-packages spin gcc")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        left = column in ("protocol", "sizes", "regime", "explored", "verdict", "largest", "the next one")
        table.add_column(column, justify="left" if left else "right", no_wrap=True)
    return table


def _for_all(report: Report) -> Table:
    table = _table("Proofs for all sizes, CPU seconds", "protocol", "regime", "views", "seconds", "verdict")
    for one in report.for_all:
        verdict = f"not proved: {', '.join(one.not_proved)}" if one.not_proved else f"{len(one.proved)} proved"
        table.add_row(one.protocol, one.regime, f"{one.views:,}", f"{one.seconds:.2f}", verdict)
    return table


def _verdicts(report: Report) -> Table:
    table = _table("CPU seconds to a verdict", "protocol", "sizes", "regime", "states", "seconds", "verdict")
    for one in report.verdicts:
        verdict = "holds" if one.holds else "refuted"
        table.add_row(one.protocol, one.sizes, one.regime, f"{one.states:,}", f"{one.seconds:.2f}", verdict)
    return table


def _races(report: Report) -> Table:
    table = _table(
        "Both explorers side by side, states a CPU second (medians)",
        *("protocol", "sizes", "regime", "explored", "states", "plain", "vector", "ratio"),
    )
    for one in report.races:
        rates = (f"{one.states / seconds:,.0f}" for seconds in (one.plain, one.vector))
        explored = "reduced" if one.reduced else "all"
        table.add_row(one.protocol, one.sizes, one.regime, explored, f"{one.states:,}", *rates, f"{one.ratio:.1f}")
    return table


def _reaches(report: Report) -> Table:
    within = report.reaches[0].within if report.reaches else 0
    table = _table(
        f"The largest size within {within:g} CPU seconds",
        *("protocol", "regime", "largest", "states", "seconds", "the next one"),
    )
    for one in report.reaches:
        table.add_row(one.protocol, one.regime, one.sizes, f"{one.states:,}", f"{one.seconds:.1f}", one.not_finished)
    return table


def _oracle(report: Report) -> Table:
    table = _table(
        "SPIN on the exported model and ours, fault-free, CPU seconds",
        *("protocol", "sizes", "states", "export", "spin+gcc", "SPIN", "plain", "vector", "reduced", "SPIN/vector"),
    )
    for one in report.oracle:
        figures = (one.export, one.compile, one.run, one.plain, one.vector, one.reduced)
        ratio = f"{one.run / one.vector:.2f}"
        table.add_row(one.protocol, one.sizes, f"{one.states:,}", *(f"{figure:.2f}" for figure in figures), ratio)
    return table
