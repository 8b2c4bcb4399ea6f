"""One operation as an engine knows it."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from elasticfsm.errors import RequestRefused


class Operation(msgspec.Struct, frozen=True):
    """An operation: its id, the generation that it leads to and its members in rank order, durations in seconds."""

    id: str
    generation: int
    members: tuple[str, ...] = ()
    deadlines: Mapping[str, float] = {}


class OperationEnded(RequestRefused):
    """The operation has ended on this engine and cannot begin again; the text says how it ended."""
