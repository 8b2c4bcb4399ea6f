"""A mistake in a spec file: where it stands, what was found, what was expected and how to mend it."""

from __future__ import annotations

import difflib
from typing import Literal

import msgspec

from elasticfsm.reading import Document, Place


class Finding(msgspec.Struct, frozen=True, order=True):
    """One mistake; `warning` is one that does not make the protocol wrong."""

    file: str
    line: int
    place: str
    found: str
    expected: str
    fix: str
    severity: Literal["error", "warning"] = "error"

    def __str__(self) -> str:
        kind = "warning: " if self.severity == "warning" else ""
        where = f"at {self.place}: " if self.place else ""
        return f"{self.file}:{self.line}: {kind}{where}found {self.found}, expected {self.expected}; {self.fix}"


def finding(
    document: Document,
    place: Place,
    found: str,
    expected: str,
    fix: str,
    severity: Literal["error", "warning"] = "error",
) -> Finding:
    """A finding at a place of a document."""
    where = ".".join(str(part) for part in place)
    return Finding(str(document.path), document.line(place), where, found, expected, fix, severity)


def nearest(name: str, known: list[str]) -> str:
    """The known names that look like this one, for a message; all of them if none does."""
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
    return ", ".join(near or known) or "nothing"
