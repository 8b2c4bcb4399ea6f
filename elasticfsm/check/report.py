"""What the checker prints: a table of runs, a verdict for every property, and the trace of each refutation."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from elasticfsm.check.allsizes.prove import PROVED, Proof
from elasticfsm.check.run import Checked
from elasticfsm.check.verdict import Run


def runs_table(checked: list[Checked]) -> Table:
    """One line for each run."""
    table = Table(box=None, pad_edge=False)
    for column in ("protocol", "sizes", "regime"):
        table.add_column(column, no_wrap=True)
    for column in ("states", "transitions", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("explored", no_wrap=True)
    table.add_column("verdict")
    for one in checked:
        for run in one.runs:
            table.add_row(
                one.name,
                run.sizes,
                run.regime,
                f"{run.states:,}",
                f"{run.transitions:,}",
                f"{run.seconds:.1f}",
                "reduced" if run.reduced else "all",
                _verdict(one, run),
            )
    return table


def proofs_table(checked: list[Checked]) -> Table:
    """One line for each proof for all sizes: how many views there are, what they show."""
    table = Table(box=None, pad_edge=False)
    for column in ("protocol", "sizes", "regime"):
        table.add_column(column, no_wrap=True)
    table.add_column("views", justify="right", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("verdict")
    for one in checked:
        for proof in one.proofs:
            cells = (one.name, "all", proof.regime, f"{proof.views:,}", f"{proof.seconds:.1f}")
            table.add_row(*cells, _proof_verdict(one, proof))
    return table


def _proof_verdict(one: Checked, proof: Proof) -> str:
    if proof.proved:
        return f"[green]{PROVED}[/]: {', '.join(proof.verdicts)}"
    named = f", {one.must} among them as it must" if one.must in proof.told else ""
    found = ", ".join(proof.told) or "more views than allowed"
    return f"[{'green' if named else 'yellow'}]not proved{named}[/]: {found}"


def _verdict(one: Checked, run: Run) -> str:
    if run.refuted:
        named = f", {one.must} as it must" if one.must in run.refuted else ""
        return f"[{'green' if named else 'red'}]refuted{named}[/]: {', '.join(sorted(run.refuted))}"
    return "[green]holds[/]" if run.complete else "[yellow]inconclusive[/]: more states than allowed"


def properties_table(checked: list[Checked]) -> Table:
    """For each shipped protocol and each property: proved up to which sizes, refuted, or inconclusive."""
    table = Table(box=None, pad_edge=False)
    for column in ("protocol", "property", "verdict"):
        table.add_column(column, no_wrap=column != "verdict")
    for one in checked:
        for name, verdict in one.verdicts().items():
            colour = "green" if verdict.startswith("proved") else "red" if verdict.startswith("refuted") else "yellow"
            table.add_row(one.name, name, f"[{colour}]{verdict}[/]")
    return table


def show(console: Console, checked: list[Checked], traces: bool) -> None:
    """Prints everything that was found."""
    if any(one.runs for one in checked):
        console.print(runs_table(checked))
        console.print()
    if any(one.proofs for one in checked):
        console.print(proofs_table(checked))
    protocols = [one for one in checked if not one.must]
    if protocols:
        console.print()
        console.print(properties_table(protocols))
    for one in checked:
        _show_gaps(console, one)
        if traces or not one.must:
            _show_traces(console, one)
        _show_views(console, one)
        if one.must and not one.ok:
            console.print(f"\n[red]{one.name} must be refuted by {one.must}, and is not[/]")


def _show_gaps(console: Console, one: Checked) -> None:
    if one.never:
        console.print(
            f"\n[red]{one.name}: no run takes these ways, although no fault is needed for them: what leads there?[/]"
        )
        for edge in one.never:
            console.print(f"  {_edge(edge)}")
    if one.unseen:
        console.print(
            f"\n[yellow]{one.name}: not taken here; other sizes or protocols may, or they are of a whole phase[/]"
        )
        for edge in one.unseen:
            console.print(f"  {_edge(edge)}")
    if one.faulty:
        console.print(f"\n{one.name}: {len(one.faulty)} ways out are taken only with faults, expiry or from outside")


def _show_traces(console: Console, one: Checked) -> None:
    for name, (run, found) in one.refuted().items():
        if one.must and name != one.must:
            continue
        console.print(f"\n[bold]{one.name} {run.sizes}, {run.regime}: {name}[/], {found.steps} steps")
        for line in found.lines:
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _show_views(console: Console, one: Checked) -> None:
    """What leads to a view that refutes a property; a system may show it or not."""
    for proof in one.proofs:
        for name, lines in proof.told.items() if not one.runs else ():
            if one.must and name != one.must:
                continue
            console.print(f"\n[bold]{one.name}, {proof.regime}: {name} is not proved for all sizes[/]")
            for line in lines:
                console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)


def _edge(edge: tuple[str, str, str]) -> str:
    machine, state, guard = edge
    return f"{machine}.{state}: {guard}" if state else f"{machine}: {guard}"


def as_data(checked: list[Checked]) -> list[dict[str, Any]]:
    """The same as plain data, for --json."""
    return [
        {
            "protocol": one.name,
            "must_refute": one.must or None,
            "ok": one.ok,
            "properties": one.verdicts(),
            "runs": [
                {
                    "sizes": run.sizes,
                    "regime": run.regime,
                    "states": run.states,
                    "transitions": run.transitions,
                    "seconds": round(run.seconds, 2),
                    "reduced": run.reduced,
                    "complete": run.complete,
                    "refuted": {
                        name: {"steps": found.steps, "trace": found.lines} for name, found in run.refuted.items()
                    },
                }
                for run in one.runs
            ],
            "all_sizes": [
                {
                    "regime": proof.regime,
                    "views": proof.views,
                    "seconds": round(proof.seconds, 2),
                    "complete": proof.complete,
                    "properties": proof.verdicts,
                    "views_against_it": proof.told,
                }
                for proof in one.proofs
            ],
            "never_taken": [_edge(edge) for edge in one.never],
            "not_taken_here": [_edge(edge) for edge in one.unseen],
            "only_with_faults": [_edge(edge) for edge in one.faulty],
        }
        for one in checked
    ]
