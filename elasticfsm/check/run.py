"""Runs the checker over protocols and patches and tells whether all is as it must be."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from elasticfsm import language
from elasticfsm.check.allsizes.prove import PROVED, Proof, prove
from elasticfsm.check.coverage import gaps
from elasticfsm.check.fair import fairly_ends
from elasticfsm.check.faulty import limits_of, table, tasks_of
from elasticfsm.check.move import Edge
from elasticfsm.check.plan import Task, tasks
from elasticfsm.check.verdict import Refutation, Run, run
from elasticfsm.check.world import Regime, sizes_of
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.errors import SpecError
from elasticfsm.patch import load_patch, patched, shipped_patches
from elasticfsm.protocol import load, shipped

HOLDS, REFUTED = 0, 1  # exit codes; 2 is a bad input (`SpecError`)
MAX_STATES = 30_000_000  # what fits into 6 GiB
PIPED = 200  # columns of what no terminal shows: nothing is cut


@dataclass
class Options:
    """What the command line may change; `sizes` are texts like `2+1`."""

    sizes: list[str] = field(default_factory=list)
    reduced: bool = True
    quick: bool = False
    max_states: int = MAX_STATES
    engine: str = "auto"
    counterexamples: Path | None = None
    regime: Regime | None = None  # instead of the usual ones
    over: list[str] = field(default_factory=list)  # protocols, each in the place of the one whose name it bears
    fair: bool = False  # whether every fair run ends, too
    all_sizes: bool = False  # the proofs for every size only, nothing is explored

    @property
    def usual(self) -> bool:
        """Whether sizes and regimes are the usual ones."""
        return not (self.sizes or self.quick or self.regime)


@dataclass
class Checked:
    """One protocol or patch and all its runs. A patch names the property that `must` be refuted."""

    name: str
    program: Program
    must: str = ""
    patch: language.Patch | None = None
    source: str = ""
    runs: list[Run] = field(default_factory=list)
    proofs: list[Proof] = field(default_factory=list)
    never: list[Edge] = field(default_factory=list)
    faulty: list[Edge] = field(default_factory=list)
    unseen: list[Edge] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether it is as it must be: a protocol holds in every run, a patch is refuted by its property.

        What holds where it was explored need not be proved for all sizes, unless nothing was explored.
        """
        if self.must:
            return self.must in self.refuted() or any(self.must in proof.told for proof in self.proofs)
        explored = not self.refuted() and all(run.complete for run in self.runs) and not self.never
        return explored and (bool(self.runs) or all(proof.proved for proof in self.proofs))

    def refuted(self) -> dict[str, tuple[Run, Refutation]]:
        """Every refuted property with the run that gave the shortest trace."""
        found: dict[str, tuple[Run, Refutation]] = {}
        for one in self.runs:
            for name, refutation in one.refuted.items():
                if name not in found or refutation.steps < found[name][1].steps:
                    found[name] = (one, refutation)
        return found

    def verdicts(self) -> dict[str, str]:
        """For each property: refuted where, or proved up to which sizes under which regime."""
        names = dict.fromkeys(name for one in self.runs for name in one.properties)
        names |= dict.fromkeys(name for proof in self.proofs for name in proof.verdicts)
        return {name: self._verdict(name) for name in (*names, *(n for n in self.refuted() if n not in names))}

    def _verdict(self, name: str) -> str:
        if name in self.refuted():
            one, found = self.refuted()[name]
            return f"refuted at {one.sizes}, {one.regime} ({found.steps} steps)"
        found_for_all = {proof.regime: proof.verdicts[name] for proof in self.proofs if name in proof.verdicts}
        told = [f"{verdict} ({regime})" for regime, verdict in found_for_all.items() if verdict == PROVED]
        for regime in dict.fromkeys(one.regime for one in self.runs if name in one.properties):
            of_regime = [one for one in self.runs if one.regime == regime]
            proved = _largest([one.sizes for one in of_regime if one.complete])
            cut = [one.sizes for one in of_regime if not one.complete]
            proved = [] if found_for_all.get(regime) == PROVED else proved
            told += [f"proved up to {', '.join(proved)} ({regime})"] if proved else []
            told += [f"inconclusive at {', '.join(cut)} ({regime})"] if cut else []
        rest = [(regime, verdict) for regime, verdict in found_for_all.items() if verdict != PROVED]
        return "; ".join([*told, *(f"{verdict} for all sizes ({regime})" for regime, verdict in rest)])


def _largest(sizes: list[str]) -> list[str]:
    """The sizes that no other one covers."""
    numbers = {size: tuple(map(int, size.split("+"))) for size in sizes}

    def covered(size: str) -> bool:
        return any(
            other != size and all(a <= b for a, b in zip(numbers[size], numbers[other], strict=True)) for other in sizes
        )

    return [size for size in dict.fromkeys(sizes) if not covered(size)]


def check(
    specs: list[str],
    patches: list[str],
    options: Options,
    console: Console | None = None,
    as_json: Path | None = None,
    traces: bool = True,
    faulty: bool = False,
) -> int:
    """Checks protocols (all shipped ones and all shipped patches if none is named), prints, and returns the exit code.

    `faulty` leaves the protocols out and prints the table of patches. Raises `SpecError` for a file, size or patch
    that cannot be used.
    """
    from elasticfsm.check.report import as_data, show

    if faulty and specs:
        raise SpecError(f"--faulty is about patches, not about {', '.join(specs)}; leave it out, or name a --patch")
    console = console or _console()
    everything = not specs and not patches
    todo = [_protocol(name, options.over) for name in (specs or (shipped() if everything and not faulty else []))]
    todo += [_patch(name) for name in (patches or ([str(p) for p in shipped_patches()] if everything else []))]
    for one in todo:
        for size in options.sizes:
            sizes_of(one.program, size)
    for one in todo:
        _check(one, options, console)
    if faulty:
        console.print(table([*todo]))
    else:
        show(console, todo, traces=traces and not everything)
    if options.counterexamples is not None:
        _write_counterexamples(todo, options.counterexamples, console)
    if as_json is not None:
        as_json.write_text(json.dumps(as_data(todo), indent=1) + "\n", encoding="utf-8")
    return HOLDS if all(one.ok for one in todo) else REFUTED


def _console() -> Console:
    """The terminal, or for a pipe or file one that is wide enough for the tables."""
    console = Console()
    return console if console.is_terminal else Console(width=max(console.width, PIPED))


def _write_counterexamples(todo: list[Checked], out: Path, console: Console) -> None:
    from elasticfsm.check.counterexample import Case, write

    for one in todo:
        traces = {id(found.trace): found for _, found in one.refuted().values()}  # two properties may share one
        for refutation in traces.values():
            if refutation.trace is not None:
                case = Case(one.source, bool(one.must), refutation.trace)
                lines = [*write(case, out), f"again with: {case.command(out)}"]
                console.print("\n".join(["", *lines]), markup=False, highlight=False, soft_wrap=True)


def _protocol(name: str, over: list[str]) -> Checked:
    protocol = load(name)
    instead = {part.name: part for part in map(load, over)}
    label = f"{protocol.name} ({', '.join(over)})" if over else protocol.name
    return Checked(label, compile_protocol(protocol, instead), source=name)


def _patch(name: str) -> Checked:
    patch, document = load_patch(name)
    return Checked(patch.patch, patched(patch, document), must=patch.refuted, patch=patch, source=name)


def _check(one: Checked, options: Options, console: Console) -> None:
    if options.all_sizes or (options.usual and not one.must):
        with console.status(f"{one.name}, all sizes"):
            one.proofs.append(prove(one.program))
    if options.all_sizes:
        return
    for task in _tasks(one, options):
        if one.must and one.must in one.refuted() and not options.sizes:
            break
        with console.status("") as status:
            label = f"{one.name} {task.sizes}, {task.regime}"

            def tell(states: int, label: str = label) -> None:
                status.update(f"{label}: {states:,} states")

            tell(0)
            for limit in limits_of(one.must, options.max_states) if one.must else (options.max_states,):
                found = run(
                    task.program,
                    task.engines,
                    task.regime,
                    options.reduced,
                    limit,
                    tell,
                    options.engine,
                    keep=options.counterexamples is not None,
                )
                if found.complete or one.must in found.refuted:
                    break
        if options.fair and one.program.coordinator:
            _judge_fairness(found, task, options)
        one.runs.append(found)
        if not console.is_terminal:
            print(f"{label}: {found.states:,} states, {found.seconds:.1f} s", file=sys.stderr)
    if not one.must:
        thorough = options.usual and all(found.complete for found in one.runs)
        taken = {edge for found in one.runs for edge in found.edges}
        one.never, one.faulty, one.unseen = gaps(one.program, taken, thorough)
        one.unseen = [] if options.quick else one.unseen


def _judge_fairness(found: Run, task: Task, options: Options) -> None:
    refutation = fairly_ends(task.program, task.engines, task.regime, options.max_states)
    found.properties = tuple(dict.fromkeys((*found.properties, "terminates")))
    if refutation is not None:
        found.refuted.setdefault("terminates", refutation)


def _tasks(one: Checked, options: Options) -> list[Task]:
    """A patch is tried at growing sizes until its property is refuted."""
    if options.regime is not None and not one.must:
        smallest = "+".join("1" for _ in one.program.roles)
        return [Task(one.program, size, options.regime) for size in options.sizes or [smallest]]
    if not one.must or options.sizes:
        return tasks(one.program, options.sizes, options.quick)
    return tasks_of(one.patch, one.program) if one.patch is not None else []
