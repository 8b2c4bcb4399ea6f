"""`make oracle`: SPIN and `elasticfsm check` judge each shipped protocol and patch; exit 1 if they disagree."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from elasticfsm.check.plan import tasks
from elasticfsm.compile import Program, program
from elasticfsm.errors import ElasticError
from elasticfsm.export.spin import available
from elasticfsm.language import Patch
from elasticfsm.patch import load_patch, patched, shipped_patches
from elasticfsm.protocol import shipped

from .compare import Row, compare

UNSAID = ("terminates", "exactly_once", "one_operation", "no_leak", "wishes_met")
COLUMNS = ("protocol", "sizes", "regime", "SPIN", "ours", "states", "states", "reduced", "export", "spin+gcc", "run")


def main() -> int:
    """Runs the comparison and returns the exit code: 0 agreed, 1 disagreed, 2 something is missing."""
    wanted = _arguments()
    if not available():
        print("SPIN or gcc is missing: tools/system-packages spin gcc", file=sys.stderr)
        return 2
    rows = []
    console = Console(width=None if sys.stdout.isatty() else 200)
    for name, whole, sizes, cancel in _plan(wanted):
        rows.append(compare(name, whole, sizes, cancel, wanted.limit, wanted.megabytes, wanted.seconds))
        agreed = "disagree" if rows[-1].disagree else "agree"
        print(f"{name} {sizes}, {rows[-1].regime}: {agreed}", file=sys.stderr)
    console.print(_table(rows))
    for row in rows:
        for line in row.disagree:
            console.print(f"DISAGREE {row.name} {row.sizes}, {row.regime}: {line}", style="red")
    if wanted.json:
        wanted.json.write_text(json.dumps([row.data() for row in rows], indent=1) + "\n")
    return int(any(row.disagree for row in rows))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make oracle", description=__doc__)
    parser.add_argument("names", nargs="*", help="protocols or patches; without any, all that are shipped")
    parser.add_argument("--sizes", action="append", default=[], help="1+1, 2+1, ...; may be given several times")
    parser.add_argument("--seconds", type=float, default=120, help="how many CPU seconds SPIN may search")
    parser.add_argument("--megabytes", type=int, default=4096, help="how much memory SPIN may use")
    parser.add_argument("--limit", type=int, default=1_000_000, help="how many states we explore without reduction")
    parser.add_argument("--no-cancel", action="store_true", help="without the regime in which the operator cancels")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    return parser.parse_args()


def _plan(wanted: argparse.Namespace) -> Iterator[tuple[str, Program, str, bool]]:
    patches = {path.stem: path for path in shipped_patches() if wanted.names or _exported(load_patch(path)[0])}
    for name in wanted.names or [*shipped(), *patches]:
        whole = patched(*load_patch(patches[name])) if name in patches else program(name)
        sizes = wanted.sizes or (
            ["1+1"] if len(whole.roles) > 1 else ["1", "2", "3"][: 2 if name == "rebalance" else 3]
        )
        for task in tasks(whole, sizes):
            if not (task.regime.cancel and wanted.no_cancel):
                yield name, whole, task.sizes, task.regime.cancel


def _exported(patch: Patch) -> bool:
    """Whether the export has words for what a patch breaks: none for faults, leftovers, facts of the coordinator.

    A fact of other engines that is missing refutes `contracts` there, not the property of that fact.
    """
    elsewhere = any(fact.startswith("all ") for meaning in patch.steps.values() for fact in meaning.requires)
    return not (patch.under or patch.inside or elsewhere or patch.refuted in UNSAID or patch.patch == "kb34")


def _table(rows: list[Row]) -> Table:
    table = Table(title="SPIN and ours; seconds are CPU seconds, `run` is SPIN / ours unreduced / ours reduced")
    for column in COLUMNS:
        table.add_column(column, justify="right" if column not in COLUMNS[:5] else "left", overflow="fold")
    for row in rows:
        stages = row.spin.seconds
        table.add_row(
            row.name,
            row.sizes,
            row.regime,
            _verdict(row.spin.refuted, row.spin.complete),
            _verdict(row.refuted, row.complete),
            f"{row.spin.states:,}",
            f"{row.states:,}" if row.states else "-",
            f"{row.reduced_states:,}",
            f"{stages['export']:.1f}",
            f"{stages['spin'] + stages['gcc']:.1f}",
            f"{stages['run']:.1f} / {row.seconds:.1f} / {row.reduced_seconds:.1f}",
        )
    return table


def _verdict(refuted: set[str], complete: bool) -> str:
    if refuted:
        return "refuted: " + " ".join(sorted(refuted)) + ("" if complete else " (cut short)")
    return "holds" if complete else "inconclusive"


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ElasticError as error:
        print(f"oracle: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
