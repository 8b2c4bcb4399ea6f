"""The JSON Schema of the spec language as a committed file, for editors: `spec/schema.json`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from elasticfsm.language import schema
from elasticfsm.steps import SPEC

FILE = SPEC / "schema.json"


def text() -> str:
    """The schema as indented JSON; the same language gives the same bytes."""
    return msgspec.json.format(msgspec.json.encode(schema(), order="sorted"), indent=2).decode() + "\n"


def write(path: Path = FILE) -> None:
    """Writes the schema."""
    path.write_text(text(), encoding="utf-8")


def is_fresh(path: Path = FILE) -> bool:
    """Whether a file is the schema of the language as it is now."""
    return path.exists() and path.read_text(encoding="utf-8") == text()
