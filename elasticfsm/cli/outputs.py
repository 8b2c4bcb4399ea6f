"""Where a command may write: looked at while its options are read, so that no work is done for nothing.

The two functions are callbacks of typer options. A file that can be written now may still fail later (a full disk).
"""

from __future__ import annotations

import os
from pathlib import Path

import typer

from elasticfsm.errors import RequestRefused


def file(param: typer.CallbackParam, value: Path | None) -> Path | None:
    """A file that a command will write, new or replaced; RequestRefused if it cannot be written."""
    if value is not None:
        refuse_file(value, param.opts[0])
    return value


def journals(param: typer.CallbackParam, value: str) -> str:
    """A directory for the journals of one run ("": none); RequestRefused if it cannot be made or holds journals."""
    if value:
        refuse_directory(Path(value), param.opts[0])
        if any(Path(value).glob("*.jsonl")):
            raise RequestRefused(
                f"{param.opts[0]} {value}: journals of another run lie there; give a new or an empty directory"
            )
    return value


def refuse_file(path: Path, option: str) -> None:
    """Raise RequestRefused if a file cannot be written; nothing is created."""
    parent = path.resolve().parent
    if path.is_dir():
        raise RequestRefused(f"{option} {path}: this is a directory; give the name of a file")
    if path.exists():
        if not os.access(path, os.W_OK):
            raise RequestRefused(f"{option} {path}: no permission to write this file; give another name")
    elif not parent.is_dir():
        raise RequestRefused(f"{option} {path}: no such directory {parent}; make it, or give another name")
    elif not os.access(parent, os.W_OK | os.X_OK):
        raise RequestRefused(f"{option} {path}: no permission to write in {parent}; give another name")


def refuse_directory(path: Path, option: str) -> None:
    """Raise RequestRefused if a directory can neither be written in nor be made; nothing is created."""
    there = next(each for each in (path.resolve(), *path.resolve().parents) if each.exists())
    if not there.is_dir():
        raise RequestRefused(f"{option} {path}: {there} is a file; give a new or an empty directory")
    if not os.access(there, os.W_OK | os.X_OK):
        raise RequestRefused(f"{option} {path}: no permission to write in {there}; give another directory")
