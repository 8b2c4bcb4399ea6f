"""What is wrong with a state by itself, as the plain explorer judges it, for whole columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from elasticfsm.check.explore import Graph, look
from elasticfsm.check.service import Judged, Service
from elasticfsm.check.transition import Interrupted, Transition
from elasticfsm.check.vector.kinds import Column, Kind, Lazy
from elasticfsm.check.vector.memo import Memo
from elasticfsm.check.vector.views import Ref, real
from elasticfsm.check.vector.watched import Watched
from elasticfsm.check.world import RUNNING, State

SIGNS = 40  # bits of the signs that engines bear


class Judgement(NamedTuple):
    """What is said of one state: refuted properties, how an ended operation ended (-1: it runs), whether well."""

    refuted: tuple[str, ...] = ()
    ends: int = -1
    good: bool = False
    interrupted: bool = False


class _Watched:
    """The service, asked for the signs of each engine as one question."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def judge(self, state: State) -> Judged:
        """What is said of a state whose numbers are noted."""
        borne = 0
        for number in state[1:-1]:
            borne |= _asked(number, self._service.signs)
        boss: Any = state[0]
        return self._service.judged(real(boss), borne)


def _asked(number: Any, signs: Callable[[int], int]) -> int:
    return int(number.view(("call", signs), signs(number.peek())).all()) if isinstance(number, Ref) else signs(number)


class Judging:
    """The judgements of rows of states; a state from which only the environment moves is another case."""

    def __init__(self, graph: Graph, watched: Watched, kinds: Sequence[Kind], alarmed: bool) -> None:
        self._graph, self._watched, self._alarmed = graph, watched, alarmed
        regime = (
            graph.world.regime
        )  # where waiting for ever is judged otherwise, coordinator and signs are all there is
        self._direct = graph.service is not None and bool(regime.crashes or regime.losses or regime.expiry != "off")
        self._signs = Lazy(graph.service.signs) if graph.service is not None else None
        self._service = _Watched(graph.service) if graph.service is not None else None
        moves = Transition((), None, 0)  # type: ignore[arg-type]
        self._memos = [Memo(kinds, lambda refs, found=found: self._judge(refs, found)) for found in ([], [moves])]  # type: ignore[misc]

    def __call__(self, start: int, columns: Sequence[Column], moving: Column) -> None:
        """Judges the states numbered from `start` on; `moving` is 1 where somebody else than the environment moves."""
        if self._direct and self._signs is not None:
            return self._by_signs(start, columns, self._signs)
        for memo, rows in zip(self._memos, (np.flatnonzero(moving == 0), np.flatnonzero(moving)), strict=True):
            if rows.size:
                leaves = memo(columns, rows)
                self._tell(memo.leaves, leaves, rows + start)
        return None

    def _by_signs(self, start: int, columns: Sequence[Column], signs: Lazy) -> None:
        """Judges each combination of a coordinator and the signs that engines bear once."""
        borne: Column = np.bitwise_or.reduce([signs(column) for column in columns[1 : self._graph.world.count + 1]])
        cases, leaves = np.unique(columns[0] << SIGNS | borne, return_inverse=True)
        service = self._graph.service
        if service is None:
            return
        said = [service.judged(case >> SIGNS, case & (1 << SIGNS) - 1) for case in cases.tolist()]
        told = [Judgement(one.refuted, -1 if one.ends & RUNNING else one.ends, one.good) for one in said]
        self._tell(told, leaves, np.arange(start, start + len(borne)))

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
