"""The agreement that ends every forward step: work, votes and identity in one small all-reduce."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import torch

from elasticfsm.errors import GroupError

from .group import Group
from .identity import check_equal, operation_hash, spread

_ALWAYS = ("generation", "step")
_ABSENT = -(1 << 62)  # below every hash: what a rank that casts no vote of an operation contributes for x and for -x


@dataclass(frozen=True)
class Agreed:
    """What all members of a step know alike: the votes that everybody cast, and whether anybody has work."""

    votes: frozenset[str]
    work: bool


class StepAgreement:
    """The step vote of protocol rule F10 over a fixed, ordered list of vote names.

    One int64 tensor under MAX: [work, -v1, ..., -vn, generation, -generation, step, -step, operation, -operation].
    The MAX of negated votes is their AND; a value and its negative show maximum and minimum at once. Engines learn of
    an operation at different steps, so its id is compared among those only that cast a vote of it.
    """

    def __init__(self, votes: Sequence[str]) -> None:
        self._votes = tuple(votes)
        self._tensor = self._new()
        self._operation = ("", operation_hash(""))

    def agree(
        self,
        group: Group,
        cast: Collection[str],
        work: bool,
        *,
        generation: int,
        operation: str,
        step: int,
        within: float | None = None,
    ) -> Agreed:
        """Contribute to step `step` and return what all agreed on; every rank of `group` calls it, it blocks.

        `operation` is empty unless a vote of that operation is cast. Raises IdentityMismatch when ranks differ in
        generation or step or cast votes of different operations, GroupError when the group fails.
        """
        unknown = set(cast).difference(self._votes)
        if unknown:
            raise GroupError(f"unknown votes {', '.join(sorted(unknown))}; known: {', '.join(self._votes)}")
        mine = (generation, step, self._hash(operation))
        named = spread(mine[2:]) if operation else [_ABSENT, _ABSENT]
        row = [int(work), *(-int(vote in cast) for vote in self._votes), *spread(mine[:2]), *named]
        self._tensor.numpy()[:] = row
        try:
            group.all_reduce(self._tensor, "max", within)
        except GroupError:
            self._tensor = self._new()  # the operation in flight keeps the old one
            raise
        return self._read(self._tensor.tolist(), mine, f"agreement on {group.label} at rank {group.rank}")

    def _read(self, reduced: list[int], mine: Sequence[int], where: str) -> Agreed:
        count = len(self._votes)
        check_equal(reduced[1 + count : -2], _ALWAYS, mine, where)
        if reduced[-2] != _ABSENT:
            check_equal(reduced[-2:], ("operation",), mine[2:], where)
        full = frozenset(vote for vote, bit in zip(self._votes, reduced[1 : 1 + count], strict=True) if bit == -1)
        return Agreed(full, bool(reduced[0]))

    def _new(self) -> torch.Tensor:
        return torch.zeros(3 + len(self._votes) + 2 * len(_ALWAYS), dtype=torch.int64)

    def _hash(self, operation: str) -> int:
        if self._operation[0] != operation:
            self._operation = (operation, operation_hash(operation))
        return self._operation[1]
