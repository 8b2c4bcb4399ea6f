"""Turns text into SVG with `dot` and `mscgen`, and marks each SVG with the hash of the text it was made from."""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
from pathlib import Path

import graphviz

from elasticfsm.errors import ElasticError

_NEEDS = {".dot": ("dot", "graphviz"), ".msc": ("mscgen", "mscgen")}
_MARK = "<!-- source sha256 {} -->"
_SECONDS = 60


class CannotDraw(ElasticError):
    """A program that draws is missing or refused the text."""


def rendered(name: str) -> bool:
    """Whether a text is made into an SVG; Mermaid is drawn by whoever shows it."""
    return Path(name).suffix in _NEEDS


def require(names: list[str]) -> None:
    """Raises `CannotDraw`, in one line, when a program that these texts need is not installed."""
    needed = dict.fromkeys(_NEEDS[Path(name).suffix] for name in names if rendered(name))
    missing = [(program, package) for program, package in needed if shutil.which(program) is None]
    if missing:
        programs = " and ".join(f"`{program}`" for program, _ in missing)
        packages = " ".join(package for _, package in missing)
        raise CannotDraw(f"drawing needs {programs}: apt-get install {packages} (or brew install {packages})")


def svg(name: str, text: str) -> str:
    """The SVG of a .dot or .msc text, with its mark; raises `CannotDraw` when the program refuses it."""
    drawn = _dot(text) if name.endswith(".dot") else _mscgen(name, text)
    head, tag, rest = drawn.partition("<svg")
    return f"{head}{_MARK.format(digest(text))}\n{tag}{rest}"


def digest(text: str) -> str:
    """The hash that an SVG carries of its text."""
    return hashlib.sha256(text.encode()).hexdigest()


def mark_of(drawn: str) -> str:
    """The hash that an SVG carries; empty if it has none."""
    found = re.search(_MARK.format("([0-9a-f]{64})"), drawn)
    return found.group(1) if found else ""


def _dot(text: str) -> str:
    try:
        return str(graphviz.pipe("dot", "svg", text.encode()).decode())
    except graphviz.CalledProcessError as error:
        raise CannotDraw(f"dot refused the text: {error}") from error


def _mscgen(name: str, text: str) -> str:
    command = ["mscgen", "-T", "svg", "-i", "-", "-o", "-"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, timeout=_SECONDS, check=False)
    if done.returncode != 0:
        raise CannotDraw(f"mscgen refused {name}: {done.stderr.decode().strip()}")
    return done.stdout.decode()
