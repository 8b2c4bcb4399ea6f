"""`elasticfsm check`: the model checker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from . import outputs

Specs = Annotated[
    list[str] | None, typer.Argument(help="Protocols by name or path; default: all, and every shipped patch.")
]
Patches = Annotated[
    list[str] | None, typer.Option("--patch", help="A patch by name or path; its property must be refuted.")
]
Sizes = Annotated[list[str] | None, typer.Option("--sizes", help="Engines of each role, as in 2+1; may be repeated.")]
Json = Annotated[
    Path | None, typer.Option("--json", callback=outputs.file, help="Write everything that was found to this file.")
]
Counterexample = Annotated[
    Path | None,
    typer.Option(help="Write each refutation here: text, chart, and a test that replays it on the runtime."),
]
Unreduced = Annotated[bool, typer.Option("--unreduced", help="Explore every interleaving, without reductions.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes only, in seconds.")]
MaxStates = Annotated[int, typer.Option("--max-states", min=1, help="Give up a run beyond this many states.")]
Crash = Annotated[int, typer.Option(min=0, help="So many deaths of engines and coordinator, anywhere.")]
Loss = Annotated[int, typer.Option(min=0, help="So many lost messages.")]
Duplicate = Annotated[int, typer.Option(min=0, help="So many messages that come again.")]
Failure = Annotated[int, typer.Option(min=0, help="So many steps that fail and touch nobody else.")]
Expiry = Annotated[
    str, typer.Option(help="Deadlines: off, perfect (only when hopeless), eventual or arbitrary; see above.")
]
Restart = Annotated[bool, typer.Option("--restart", help="A dead coordinator comes back.")]
Strict = Annotated[
    bool, typer.Option("--strict", help="A new engine's death before the commit must not cost the service.")
]
Over = Annotated[
    list[str] | None, typer.Option("--over", help="A protocol in the place of the one whose name it bears.")
]
Faulty = Annotated[
    bool, typer.Option("--faulty", help="The shipped patches only, as a table: bug, base, property, how it went.")
]
Rules = Annotated[bool, typer.Option("--rules", help="Explore what was tried for the switch and write docs/switch.md.")]
AllSizes = Annotated[
    bool, typer.Option("--all-sizes", help="Only what can be proved for every number of engines, without faults.")
]
Fair = Annotated[
    bool, typer.Option("--fair", help="Whether every fair run ends as well; with --unreduced: no run may be left out.")
]
Engine = Annotated[
    str, typer.Option("--engine", help="plain, vector (numpy), or auto: vector where there are many states.")
]


def check(
    specs: Specs = None,
    patch: Patches = None,
    sizes: Sizes = None,
    json: Json = None,
    counterexample: Counterexample = None,
    unreduced: Unreduced = False,
    quick: Quick = False,
    max_states: MaxStates = 30_000_000,
    crash: Crash = 0,
    loss: Loss = 0,
    duplicate: Duplicate = 0,
    failure: Failure = 0,
    expiry: Expiry = "",
    restart: Restart = False,
    strict: Strict = False,
    over: Over = None,
    faulty: Faulty = False,
    rules: Rules = False,
    engine: Engine = "auto",
    all_sizes: AllSizes = False,
    fair: Fair = False,
) -> None:
    """Explore every reachable interleaving of protocols; exit 1 if one is refuted or a patch is not.

    With faults (--crash, --loss, ...) deadlines fire at any moment unless --expiry says otherwise.
    """
    from elasticfsm.check.run import Options, check
    from elasticfsm.check.world import faulty as regime_of
    from elasticfsm.errors import SpecError

    if rules:
        from elasticfsm.check.switch import write

        raise typer.Exit(write())

    if counterexample is not None:
        outputs.refuse_directory(counterexample, "--counterexample")
    options = Options(list(sizes or []), not unreduced, quick, max_states, engine, counterexample)
    options.regime = regime_of(crash, loss, duplicate, failure, expiry, restart, strict)
    options.over = list(over or [])
    options.all_sizes, options.fair = all_sizes, fair
    if fair and options.reduced:
        raise SpecError("--fair looks for runs that go on for ever, and a reduced graph lacks some: add --unreduced")
    if all_sizes and (options.sizes or options.regime or faulty):
        raise SpecError("--all-sizes is about every size and no fault: it goes with no --sizes, fault or --faulty")
    raise typer.Exit(check(list(specs or []), list(patch or []), options, as_json=json, faulty=faulty))
