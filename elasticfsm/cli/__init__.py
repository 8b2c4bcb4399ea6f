"""The command line. Each command lives in a module of its own, imported only when it is asked for.

A module `elasticfsm.cli.NAME` has a function called NAME (one command) or a `typer.Typer` called `app` (several).
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import math
import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from elasticfsm.errors import ElasticError, RequestRefused

# Command -> module, in the order of --help. Names that Python reserves or that shadow others differ from the module's.
COMMANDS = {
    "demo": "demo",
    "check": "check",
    "conform": "conform",
    "mutate": "mutate",
    "draw": "draw",
    "lint": "lint",
    "schema": "schema",
    "compile": "compile",
    "export": "export",
    "explain": "explain",
    "trace": "trace",
    "plan": "plan",
    "faults": "faults",
    "bench": "bench",
    "model": "model",
    "serve": "serve",
    "scale": "scale",
    "status": "status",
    "cancel": "cancel",
    "engine": "engine",
}
GROUPS = {"trace": {"check": "trace_check"}, "model": {"new": "model_new"}}  # command -> subcommand -> function
INTERRUPTED = 130


class _Lazy(TyperGroup):
    """A group whose commands are imported when they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [name for name in COMMANDS if importlib.util.find_spec(f"{__name__}.{COMMANDS[name]}") is not None]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in self.list_commands(ctx):
            return None
        command = _command(cmd_name, importlib.import_module(f"{__name__}.{COMMANDS[cmd_name]}"))
        command.name = cmd_name
        return command

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:  # caught here because typer would only say "Aborted."
            print("elasticfsm: interrupted", file=sys.stderr)
            raise typer.Exit(INTERRUPTED) from None


def _finite(command: Any) -> Any:
    """The command, which refuses an option that is infinite or no number: its limits let both pass."""
    for each in getattr(command, "commands", {}).values():
        _finite(each)
    call = command.callback
    if call is not None:

        @functools.wraps(call)
        def checked(**options: Any) -> Any:
            for name, value in options.items():
                if isinstance(value, float) and not math.isfinite(value):
                    raise RequestRefused(f"--{name.replace('_', '-')} is {value}; expected a finite number")
            return call(**options)

        command.callback = checked
    return command


def _command(name: str, module: Any) -> Any:
    return _finite(_defined(name, module))


def _defined(name: str, module: Any) -> Any:
    """The command that a module defines: its own `app`, the functions of GROUPS, or its one function."""
    app = getattr(module, "app", None)
    if app is not None:
        return typer.main.get_group(app)
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, help=module.__doc__)
    if name not in GROUPS:
        app.command(name)(getattr(module, COMMANDS[name]))
        return typer.main.get_command(app)
    for subcommand, function in GROUPS[name].items():
        app.command(subcommand)(getattr(module, function))
    return typer.main.get_group(app)


app = typer.Typer(
    cls=_Lazy,
    name="elasticfsm",
    help="Rescale a running expert-parallel model without dropping a request, from a protocol that was model-checked.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _root() -> None:
    pass


def main() -> None:
    """Run the command line; an ElasticError becomes one line on stderr and its exit code, Ctrl-C becomes 130."""
    try:
        app(prog_name="elasticfsm")
    except ElasticError as error:
        print(f"elasticfsm: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("elasticfsm: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of our output is gone: end quietly, also at interpreter shutdown
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
