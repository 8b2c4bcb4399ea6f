"""Judges many mutants, in this process or in several."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence

from elasticfsm.mutate.judge import Judge, Judged
from elasticfsm.mutate.mutants import Mutant

Work = tuple[Mutant, str]  # a mutant, and the stage that is tried first
_SHARED: list[tuple[Judge, Sequence[Work]]] = []  # what a forked process finds; edits are functions and cannot be sent


def judged_by(judge: Judge, left: Sequence[Work], jobs: int = 1) -> Iterator[Judged]:
    """What became of each, in the order in which they are done; blocks for seconds each.

    The runs of the protocol without an edit are made before processes are forked, so that each has them.
    """
    if jobs <= 1 or len(left) < 2:
        yield from (judge.judge(mutant, first) for mutant, first in left)
        return
    for stage in judge.stages:
        judge.base(stage)
    _SHARED.append((judge, left))
    try:
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            yield from pool.imap_unordered(_one, range(len(left)))
    finally:
        _SHARED.pop()


def _one(number: int) -> Judged:
    judge, left = _SHARED[-1]
    return judge.judge(*left[number])
