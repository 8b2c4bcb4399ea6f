"""What `elasticfsm mutate` prints: the score, what kills, and who survives."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from elasticfsm.mutate.judge import Judged
from elasticfsm.mutate.score import Score, explained_in, score, unexplained


def run(
    spec: str,
    sizes: list[str] | None,
    record: Path | None,
    kind: str,
    explained: Path | None,
    every: int = 1,
    jobs: int = 1,
) -> int:
    """Judges all mutants, prints the report and returns the exit code: 1 if one survives that nobody has explained."""
    console = Console()
    said = explained_in(explained) if explained is not None else {}  # a wrong file costs no minutes
    with console.status("") as status:

        def tell(count: int, left: int, judged: Judged) -> None:
            status.update(f"{spec}: {count} of {left}, {judged.name}: {judged.how}")

        found = score(spec, record, kind, sizes, progress=tell, every=every, jobs=jobs)
    show(console, found)
    if explained is None:
        for one in found.survivors:
            console.print(f"  {one.how}: {one.name}", markup=False, highlight=False, soft_wrap=True)
        return 1 if found.survivors else 0
    wrong = unexplained(found, explained)
    missed = sum(said.get(one.name) != "equivalent" for one in found.survivors)
    killed = len(found.killed)
    if killed:
        share = f"{100 * killed / (killed + missed):.1f} %"
        console.print(f"without those explained as equivalent: {killed} of {killed + missed} killed, {share}")
    for line in wrong:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    return 1 if wrong else 0


def show(console: Console, found: Score) -> None:
    """The score in numbers: by kind of edit, and by what kills."""
    killed, counted = len(found.killed), len(found.counted)
    same, beyond = (sum(one.how == how for one in found.judged) for how in ("same", "beyond"))
    share = f"{100 * killed / counted:.1f} %" if counted else "nothing to judge"
    console.print(f"{found.spec}: {killed} of {counted} mutants killed, {share}; {len(found.survivors)} survive")
    console.print(f"not counted: {same} that are the same protocol, {beyond} whose edit no run comes to")
    table = Table(box=None, pad_edge=False)
    for column in ("kind", "mutants", "killed", "survive"):
        table.add_column(column, justify="left" if column == "kind" else "right")
    for kind in dict.fromkeys(one.kind for one in found.counted):
        of_kind = [one for one in found.counted if one.kind == kind]
        dead = sum(one.killed for one in of_kind)
        table.add_row(kind, str(len(of_kind)), str(dead), str(len(of_kind) - dead))
    console.print(table)
    by = Table(box=None, pad_edge=False)
    for column in ("killed by", "mutants", "and by nothing else"):
        by.add_column(column, justify="left" if column == "killed by" else "right")
    for name, (count, alone) in found.only().items():
        by.add_row(name, str(count), str(alone))
    console.print(by)
