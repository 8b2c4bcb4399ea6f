"""What is wrong with a state by itself, as the plain explorer judges it, for whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from elasticfsm.check.explore import Graph, look
from elasticfsm.check.service import Service
from elasticfsm.check.transition import Interrupted, Transition
from elasticfsm.check.vector.kinds import Column, Kind
from elasticfsm.check.vector.memo import Memo
from elasticfsm.check.vector.views import real
from elasticfsm.check.vector.watched import Watched


class Judgement(NamedTuple):
    """What is said of one state: refuted properties, how an ended operation ended (-1: it runs), whether well."""

    refuted: tuple[str, ...] = ()
    ends: int = -1
    good: bool = False
    interrupted: bool = False


class Judging:
    """The judgements of rows of states; a state from which only the environment moves is another case."""

    def __init__(self, graph: Graph, watched: Watched, kinds: Sequence[Kind], alarmed: bool) -> None:
        self._graph, self._watched, self._alarmed = graph, watched, alarmed
        self._service = Service(watched.world, watched.known) if graph.service is not None else None
        moves = Transition((), None, 0)  # type: ignore[arg-type]
        self._memos = [Memo(kinds, lambda refs, found=found: self._judge(refs, found)) for found in ([], [moves])]  # type: ignore[misc]

    def __call__(self, start: int, columns: Sequence[Column], moving: Column) -> None:
        """Judges the states numbered from `start` on; `moving` is 1 where somebody else than the environment moves."""
        for memo, rows in zip(self._memos, (np.flatnonzero(moving == 0), np.flatnonzero(moving)), strict=True):
            if rows.size:
                leaves = memo(columns, rows)
                self._tell(memo.leaves, leaves, rows + start)

    def _tell(self, said: list[Judgement], leaves: Column, places: Column) -> None:
        graph = self._graph
        for leaf in np.unique(leaves).tolist():
            one = said[leaf]
            if one == Judgement():
                continue
            if one.interrupted:
                raise Interrupted
            at = places[leaves == leaf]
            first = int(at.min())
            for name in one.refuted:
                if name not in graph.refuted or graph.refuted[name][0] > first:
                    graph.refuted[name] = (first, None)
            if one.ends >= 0:
                graph.ends.update(dict.fromkeys(at.tolist(), one.ends))
            if one.good:
                graph.good.extend(at.tolist())

    def _judge(self, refs: list[Any], found: list[Transition]) -> Judgement:
        seen: Any = SimpleNamespace(
            world=self._watched.world,
            successors=self._watched,
            service=self._service,
            refuted={},
            ends={},
            good=[],
        )
        try:
            look(seen, 0, tuple(refs), found, self._alarmed)
        except Interrupted:
            return Judgement(interrupted=True)
        return Judgement(tuple(seen.refuted), int(real(seen.ends.get(0, -1))), bool(seen.good))
