"""What `bench step` makes of the blocks of steps that engines measured; how long they took is the machine's to say."""

from __future__ import annotations

import pytest

from elasticfsm.errors import ElasticError
from elasticfsm.runtime.bench.watched import Block, compare, figures_of


def blocks(*seconds: float) -> list[Block]:
    return [Block(number % 2 == 0, each, 2 * each) for number, each in enumerate(seconds)]


def test_a_block_is_compared_with_its_neighbour_so_that_a_machine_that_slows_down_changes_nothing() -> None:
    slower = [factor * each for factor in (1, 1.2, 1.5, 2, 3) for each in (0.0101, 0.01)]
    cost = compare([blocks(*slower), blocks(*slower)])
    assert cost.added == pytest.approx(1)
    assert cost.cpu_added == pytest.approx(1)
    assert cost.step == pytest.approx(15)
    assert cost.pairs == 10


def test_the_bar_is_two_percent_of_the_step() -> None:
    kept, missed = (compare([blocks(*[0.01 * factor, 0.01] * 5)]) for factor in (1.019, 1.021))
    assert [figure.missed for figure in figures_of(kept) if figure.bar] == [False]
    assert [figure.missed for figure in figures_of(missed) if figure.bar] == [True]


def test_too_few_steps_are_no_measurement() -> None:
    with pytest.raises(ElasticError, match="4 pairs of blocks were served, expected 5"):
        compare([blocks(*[0.01] * 8)])
