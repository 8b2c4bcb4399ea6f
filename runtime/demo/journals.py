"""Whether the journals of a run are a run of the spec."""

from __future__ import annotations

from pathlib import Path

from elasticfsm.errors import ElasticError
from elasticfsm.trace import validate as findings

MOST = 20  # findings worth keeping


def validate(directory: Path) -> list[str]:
    """What was found, empty when the run is one that the spec allows."""
    try:
        found = findings(directory)
    except ElasticError as error:
        return [str(error)]
    texts = [f"journal: {finding}" for finding in found[:MOST]]
    return [*texts, f"journal: {len(found) - MOST} more"] if len(found) > MOST else texts
