"""The parts of the vectorised explorer by themselves: the set of states, the memo, the choice of the explorer."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from elasticfsm.check import engine
from elasticfsm.check.engine import explored
from elasticfsm.check.vector.explore import explore
from elasticfsm.check.vector.kinds import Kind
from elasticfsm.check.vector.levels import Levels
from elasticfsm.check.vector.memo import Join, Memo
from elasticfsm.check.vector.moving import Moving
from elasticfsm.check.vector.views import Ref, Step
from elasticfsm.check.vector.visited import Visited
from elasticfsm.check.verdict import run
from elasticfsm.check.world import Regime, World, sizes_of
from elasticfsm.compile import program
from elasticfsm.errors import CheckerError, SpecError


def scale_up() -> World:
    whole = program("scale_up")
    return World(whole, sizes_of(whole, "1+1"))


class Thing(NamedTuple):
    colour: str | None
    size: int
    parts: tuple[int, ...]


ALL = [Thing(None if n % 3 == 0 else "red", n % 5, tuple(range(n % 4))) for n in range(60)]


class Things(Kind):
    """Numbers that stand for things; the change `grow` leads to the next one."""

    def value(self, number: int, first: Step) -> Any:
        return ALL[number % 60]

    def change(self, number: int, step: Step) -> int:
        return number + 1


def looks(refs: list[Any]) -> tuple[Any, ...]:
    """A function that looks at one thing or at the other, and at parts that only some have."""
    one, two = (_thing(ref) for ref in refs)
    if one.colour is None:
        return ("colourless", two.size > 2)
    if two.colour is None or 2 in two.parts:
        return ("two", int(one.size))
    grown = refs[1].then(("grow",)) if isinstance(refs[1], Ref) else refs[1] + 1
    return ("grown", _thing(grown).size & 1 == 1, len(one.parts))


def _thing(number: Any) -> Any:
    if isinstance(number, Ref):
        return number.view(("thing",), ALL[number.peek() % 60])
    return ALL[number % 60]


def test_a_memo_says_of_every_row_what_the_function_says_and_runs_it_for_few() -> None:
    runs = []
    memo = Memo([Things(), Things()], lambda refs: runs.append(1) or looks(refs))
    rows = np.random.default_rng(7).integers(0, 60, (2, 5000))
    for part in np.array_split(np.arange(5000), 7):
        leaves = memo([rows[0], rows[1]], part)
        assert [memo.leaves[leaf] for leaf in leaves] == [looks([int(a), int(b)]) for a, b in rows[:, part].T]
    assert len(runs) < 600  # of 3600 pairs


def test_combinations_have_one_number_each_however_often_the_tables_grow() -> None:
    join, numbers = Join(3), {}
    generator = np.random.default_rng(3)
    for width in (2, 5, 40):
        rows = generator.integers(0, width, (3, 2000))
        for row, number in zip(rows.T.tolist(), join(list(rows)).tolist(), strict=True):
            assert numbers.setdefault(tuple(row), number) == number
    assert len(set(numbers.values())) == len(numbers)


def test_the_set_of_states_knows_what_it_has_seen_while_numbers_outgrow_their_bits() -> None:
    visited, known = Visited(4), {}
    generator = np.random.default_rng(5)
    for width in (3, 3, 20, 1000, 1 << 20, 7):
        rows = generator.integers(0, width, (4, 3000))
        numbers, fresh = visited.add(list(rows))
        new = [at for at, row in enumerate(rows.T.tolist()) if tuple(row) not in known]
        for at, row in enumerate(rows.T.tolist()):
            assert known.setdefault(tuple(row), int(numbers[at])) == int(numbers[at])
        assert set(fresh.tolist()) <= set(new) and len(fresh) == len(known) - (visited.count - len(fresh))
    assert visited.count == len(known) == len(set(known.values()))
    columns = visited.columns(0, visited.count)
    assert {tuple(row): at for at, row in enumerate(np.array(columns).T.tolist())} == known


def test_transitions_that_differ_from_the_plain_ones_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Moving.all
    monkeypatch.setattr(Moving, "all", lambda *given: whole(*given)[:-1])
    with pytest.raises(CheckerError, match=r"transitions out of state \d+ of scale_up, the plain one"):
        explore(scale_up(), reduced=False, limit=100)


def test_small_worlds_are_explored_plainly_and_large_ones_by_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    serving = World(program("serving"), {"engine": 3})
    assert not isinstance(explored(serving), Levels)
    monkeypatch.setattr(engine, "SMALL", 8)
    assert isinstance(explored(World(serving.program, serving.sizes)), Levels)
    assert not isinstance(explored(World(serving.program, serving.sizes), limit=5), Levels)


def test_an_unknown_engine_and_a_missing_numpy_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SpecError, match="engine `fast`: expected one of auto, plain, vector"):
        explored(scale_up(), engine="fast")
    monkeypatch.setattr(engine, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match="needs numpy"):
        explored(scale_up(), engine="vector")
    assert not isinstance(explored(World(program("serving"), {"engine": 3})), Levels)


def test_perfect_deadlines_are_refused_by_the_vectorised_explorer() -> None:
    serving = program("serving")
    with pytest.raises(SpecError, match="no perfect deadlines"):
        explored(World(serving, {"engine": 2}, Regime(expiry="perfect")), engine="vector")


@pytest.mark.parametrize("name", ["good_end", "commits", "collective_order"])
def test_both_engines_give_traces_of_the_same_length(name: str, mistakes: Any, grow: Any) -> None:
    edits, _ = mistakes[name]
    broken = grow(*edits)
    plain, vector = (run(broken, sizes_of(broken, "1+1"), scale_up().regime, engine=one) for one in ("plain", "vector"))
    assert name in plain.refuted
    assert {found: one.steps for found, one in plain.refuted.items()} == {
        found: one.steps for found, one in vector.refuted.items()
    }
    assert plain.edges == vector.edges
