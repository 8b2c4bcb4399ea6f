"""The soak: what it counts as a leak, and clients in a closed loop that see nothing of a growth and a shrink."""

from __future__ import annotations

import pytest

from elasticfsm.runtime.faults import soak
from elasticfsm.runtime.faults.soak import Slope, Soak


def slope(per_rescale: float) -> Slope:
    """Two sizes that alternate, each with a level of its own."""
    return soak._slope("descriptors of e0", [(n, n % 2, 50 + 20 * (n % 2) + per_rescale * n) for n in range(100)])


def test_growth_is_told_from_the_levels_of_the_sizes() -> None:
    assert slope(0).per_hundred == pytest.approx(0)
    assert slope(0.65).per_hundred == pytest.approx(65)


def test_a_descriptor_left_at_every_twentieth_rescale_is_a_leak_and_a_short_run_judges_none() -> None:
    made = Soak(seed=5, rescales=200, slopes=[slope(0.05)])
    assert soak._leaks(made) == ["seed 5: descriptors of e0 grow by 5.0 per hundred rescales"]
    made.rescales = 10
    assert soak._leaks(made) == []
    made = Soak(seed=5, rescales=200, slopes=[slope(0.01)])
    assert soak._leaks(made) == []


def test_a_part_of_the_path_begins_as_the_whole_one_goes_on() -> None:
    assert soak.path(30, 7) == soak.path(50, 7)[:31]


@pytest.mark.slow
def test_clients_in_a_closed_loop_see_nothing_of_growth_and_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "CLOSED_LOOP", (1, 2, 1))
    monkeypatch.setattr(soak, "CLIENTS", 12)
    said: list[str] = []
    made = soak.run(0, 0, 0.2, 60.0, said.append)
    assert made.loop_problems == []
    assert made.loop_requests > 24, said
