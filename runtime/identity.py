"""Values that must be equal on all ranks, compared in the same all-reduce that carries them.

Each value travels as x and -x under MAX, so the result holds the largest and the smallest: they differ if and only if
two ranks disagree (protocol rule F10).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import torch

from elasticfsm.errors import GroupError

from .deadline import Cancelled
from .group import Group


class IdentityMismatch(GroupError):
    """Ranks that met in one collective stand in different operations, generations or steps; `field` says in what."""

    def __init__(self, text: str, field: str) -> None:
        super().__init__(text)
        self.field = field


def operation_hash(operation: str) -> int:
    """A 62-bit number for an operation id, alike on every machine."""
    return int.from_bytes(hashlib.sha256(operation.encode()).digest()[:8], "big") >> 2


def spread(values: Sequence[int]) -> list[int]:
    """[x, -x, y, -y, ...]: what a rank contributes to a MAX for its values x, y, ..."""
    return [signed for value in values for signed in (value, -value)]


def check_equal(reduced: Sequence[int], fields: Sequence[str], mine: Sequence[int], where: str) -> None:
    """Raise IdentityMismatch if the reduced result of `spread` shows that a field differs between ranks."""
    for index, field in enumerate(fields):
        highest, lowest = reduced[2 * index], -reduced[2 * index + 1]
        if highest != lowest:
            raise IdentityMismatch(
                f"{where}: {field} differs between ranks: {lowest} to {highest}, here {mine[index]}; "
                "an engine missed a message or belongs to another operation",
                field,
            )


class Identity:
    """The named values that the members of a group compare when they meet outside a step."""

    def __init__(self, fields: Sequence[str]) -> None:
        self._fields = fields

    def compare(
        self,
        group: Group,
        operation: str,
        values: Mapping[str, int],
        within: float | None = None,
        cancelled: Cancelled = None,
    ) -> Mapping[str, int]:
        """One all-reduce on `group`; every rank calls it; returns the values, or raises IdentityMismatch."""
        named = {"operation": operation_hash(operation), **values}
        mine = [named[field] for field in self._fields]
        tensor = torch.tensor(spread(mine), dtype=torch.int64)
        group.all_reduce(tensor, "max", within, cancelled)
        check_equal(tensor.tolist(), self._fields, mine, f"join on {group.label} at rank {group.rank}")
        return named
