"""`elasticfsm bench NAME`: what things cost, as ratios measured side by side in one run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from . import outputs
from .bench_gpu import add_to

app = typer.Typer(
    help="What things cost, as ratios measured side by side in one run.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    pass


@app.command("eplb")
def eplb(
    json: Annotated[Path | None, typer.Option(callback=outputs.file, help="Write the figures here, as JSON.")] = None,
    reference: Annotated[bool, typer.Option(help="Beside DeepSeek's and vLLM's (tools/eplb-venv).")] = False,
    venv: Annotated[Path, typer.Option(help="Where tools/eplb-venv put them.")] = Path(".venv-eplb"),
    seed: Annotated[int, typer.Option(help="Of the loads.", min=0)] = 0,
    repeats: Annotated[int, typer.Option(help="Times are medians of so many.", min=1)] = 5,
    only: Annotated[str, typer.Option(help="Only cases whose name holds this text.")] = "",
) -> None:
    """Compare rebalance policies: run time, balance, rows moved, and the bounds; exit 1 if a bar is missed."""
    from contextlib import nullcontext

    import msgspec
    from rich.console import Console

    from elasticfsm.errors import RequestRefused
    from elasticfsm.runtime.bench.eplb import Reference, run
    from elasticfsm.runtime.bench.eplb_cases import CASES
    from elasticfsm.runtime.bench.eplb_table import show

    cases = [case for case in CASES if only in case.name]
    if not cases:
        raise RequestRefused(
            f"--only {only}: no case has that in its name; there are {'; '.join(case.name for case in CASES)}"
        )
    with Reference(venv) if reference else nullcontext() as others:
        report = run(others, cases, seed, repeats=repeats)
    console = Console()
    show(report, console if console.is_terminal else Console(width=180))
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    sys.exit(1 if report.missed else 0)


@app.command("check")
def check(
    names: Annotated[list[str] | None, typer.Argument(help="Shipped protocols; default: all of them.")] = None,
    json: Annotated[Path | None, typer.Option(callback=outputs.file, help="Write the figures here, as JSON.")] = None,
    repeats: Annotated[int, typer.Option(help="Rates are medians of so many.", min=1)] = 3,
    within: Annotated[float, typer.Option(help="CPU seconds in which the largest size is looked for.", min=0.1)] = 60,
) -> None:
    """What the checker costs: proofs for all sizes, seconds to a verdict, both explorers, the largest size, SPIN."""
    import msgspec
    from rich.console import Console

    from elasticfsm.bench.checker import measure
    from elasticfsm.bench.checker_table import show
    from elasticfsm.errors import RequestRefused
    from elasticfsm.protocol import shipped

    if unknown := [name for name in names or [] if name not in shipped()]:
        raise RequestRefused(f"{', '.join(unknown)}: no shipped protocol; there are {', '.join(shipped())}")
    report = measure(list(names or []), repeats, within, lambda line: typer.echo(line, err=True))
    console = Console()
    show(report, console if console.is_terminal else Console(width=180))
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


@app.command("transfer")
def transfer(
    json: Annotated[Path | None, typer.Option(callback=outputs.file, help="Write the figures here, as JSON.")] = None,
    rounds: Annotated[int, typer.Option(help="Ratios are medians of so many.", min=1)] = 7,
) -> None:
    """Compare NIXL through our interface with raw NIXL and gloo, for blocks of experts; exit 1 if a bar is missed."""
    import msgspec
    from rich.console import Console

    from elasticfsm.runtime.bench.transfer import run, show

    report = run(rounds)
    console = Console()
    show(report, console if console.is_terminal else Console(width=180))
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    sys.exit(0 if report.ok else 1)


@app.command("rescales")
def rescales(
    count: Annotated[int, typer.Option(help="Changes of size in a row.", min=1)] = 20,
    seed: Annotated[int | None, typer.Option(help="Of the path; without it one is drawn, and printed.", min=0)] = None,
    smallest: Annotated[int, typer.Option(help="Smallest size of the path.", min=1)] = 1,
    largest: Annotated[int, typer.Option(help="Largest size of the path.", min=2)] = 4,
    model: Annotated[Path | None, typer.Option(help="A Qwen3-MoE directory; default: the psalter model.")] = None,
    eplb: Annotated[str, typer.Option(help="async or sync.")] = "async",
    interval: Annotated[int, typer.Option(help="Steps between two rebalances.", min=1)] = 10,
    window: Annotated[int, typer.Option(help="Steps whose loads a rebalance looks at.", min=1)] = 5,
    seconds: Annotated[float, typer.Option(help="Of serving between two changes.", min=0.1)] = 0.5,
    clients: Annotated[int, typer.Option(help="Clients, each with one request at a time.", min=1)] = 4,
    json: Annotated[Path | None, typer.Option(callback=outputs.file, help="Write the report here, as JSON.")] = None,
) -> None:
    """Rescale along a random path while experts move all the time; exit 0 only if every token and expert is right."""
    import random

    import msgspec
    from rich.console import Console

    from elasticfsm.errors import RequestRefused
    from elasticfsm.runtime.bench.rescales import path
    from elasticfsm.runtime.demo.report import show
    from elasticfsm.runtime.demo.scenario import Run, Scenario
    from elasticfsm.runtime.models import PSALTER

    if eplb not in ("async", "sync"):
        raise RequestRefused(f"--eplb {eplb}: expected async or sync")
    chosen = seed if seed is not None else random.SystemRandom().randrange(1 << 16)
    sizes = path(count, chosen, smallest, largest)
    console = Console()
    console.print(f"seed {chosen}: {' -> '.join(map(str, sizes))}", highlight=False)
    scenario = Scenario(
        path=sizes,
        model=(model or PSALTER).resolve(),
        eplb=eplb,  # type: ignore[arg-type]
        eplb_interval=interval,
        eplb_window=window,
        verify_experts=True,
        seconds=seconds,
        clients=clients,
        largest=largest,
    )
    report = Run(scenario, console, False).execute()
    show(report, console)
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    sys.exit(0 if report.ok else 1)


@app.command("soak")
def soak(
    count: Annotated[int, typer.Option(help="Changes of size in a row.", min=0)] = 200,
    seed: Annotated[
        int | None, typer.Option(help="Of path and faults; without it one is drawn, and printed.", min=0)
    ] = None,
    first: Annotated[
        int, typer.Option(help="Begin with this one of the path: the same change, the same fault.", min=0)
    ] = 0,
    loop: Annotated[bool, typer.Option(help="Afterwards, 20 clients in a closed loop during 2, 4, 2, 3, 1.")] = True,
    timescale: Annotated[float, typer.Option(help="Every limit of time is multiplied by this.", min=0.05)] = 0.2,
    within: Annotated[float, typer.Option(help="Begin no change after so many seconds; 0: all of them.", min=0)] = 0.0,
    json: Annotated[Path | None, typer.Option(callback=outputs.file, help="Write the report here, as JSON.")] = None,
) -> None:
    """Rescale along a random path, a third of it with faults, then serve many clients; exit 0 if nothing is lost."""
    import random

    import msgspec

    from elasticfsm.runtime.faults.soak import run

    chosen = seed if seed is not None else random.SystemRandom().randrange(1 << 16)
    typer.echo(f"seed {chosen}")
    made = run(count, chosen, timescale, within or float("inf"), typer.echo, first, loop)
    for slope in made.slopes:
        typer.echo(f"{slope.of:<32} {slope.begin:8.1f} at the begin, {slope.per_hundred:+.2f} per hundred rescales")
    for problem in (*made.problems, *made.loop_problems):
        typer.echo(problem)
    if made.journals:
        typer.echo(f"journals: {made.journals}")
    typer.echo(
        f"{made.rescales} rescales in {made.seconds:.0f} s: {made.outcomes}, faults {made.faults}, {made.met} met; "
        f"{made.requests} requests on the path, {made.loop_requests} in the loop: {'ok' if made.ok else 'FAILED'}"
    )
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=1) + b"\n")
    sys.exit(0 if made.ok else 1)


@app.command("step")
def step(
    json: Annotated[Path | None, typer.Option(callback=outputs.file, help="Write the figures here, as JSON.")] = None,
    venv: Annotated[Path | None, typer.Option(help="Also of vLLM, in the environment of tools/vllm-venv.")] = None,
    seconds: Annotated[
        float, typer.Option(help="Serve for so long, watched and unwatched in turns; 0: leave it out.", min=0)
    ] = 60.0,
) -> None:
    """What monitor and journal cost: an event, a poll, an import, a forward step; exit 1 if a bar is missed."""
    import msgspec

    from elasticfsm.bench.step import run

    figures = run(venv)
    if seconds:
        from elasticfsm.runtime.bench.watched import figures_of, measure

        figures += figures_of(measure(seconds))
    for figure in figures:
        bar = f"   below {figure.bar:g} {figure.unit}: {'missed' if figure.missed else 'kept'}" if figure.bar else ""
        typer.echo(f"{figure.name:<60}{figure.value:>9.2f} {figure.unit}{bar}")
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=2) + b"\n")
    sys.exit(1 if any(figure.missed for figure in figures) else 0)


@app.command("growth")
def growth(
    path: Annotated[str, typer.Option(help="A smaller and a larger size.")] = "2,4",
    runs: Annotated[int, typer.Option(help="Figures are medians of so many.", min=1)] = 5,
    seconds: Annotated[float, typer.Option(help="Length of the window without growth.", min=1)] = 16.0,
    model: Annotated[Path | None, typer.Option(help="Default: the shipped model.")] = None,
    json: Annotated[Path | None, typer.Option(callback=outputs.file, help="Write the figures here, as JSON.")] = None,
) -> None:
    """Measure what growth does to the streams, beside an equal window without it; exit 1 if the bar is missed."""
    import msgspec
    from rich.console import Console

    from elasticfsm.errors import RequestRefused
    from elasticfsm.runtime.bench import growth as bench
    from elasticfsm.runtime.models import PSALTER

    sizes = tuple(int(size) if size.strip().isdigit() else 0 for size in path.split(","))
    if len(sizes) != 2 or sizes[0] >= sizes[1]:
        raise RequestRefused(f"--path {path}: expected a smaller and a larger size, such as 2,4")
    console = Console()
    quiet = Console(quiet=True)
    report = bench.run(bench.scenario(sizes, model or PSALTER, seconds), runs, quiet, console.print)
    bench.show(report, console)
    if json is not None:
        json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    sys.exit(0 if report.ok else 1)


add_to(app)
