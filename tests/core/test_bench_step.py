"""The figures of `bench step` and their bars; how large they are is for the machine to say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from elasticfsm.bench import step
from elasticfsm.cli import app
from elasticfsm.errors import ElasticError


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "per_call", lambda call, calls=1, repeats=1: call() or 0.25)
    monkeypatch.setattr(step, "_fresh", lambda code, **environment: 10.0)


def test_every_figure_has_a_unit_and_the_bars_are_those_of_the_monitor_and_the_import(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    ran = CliRunner().invoke(app, ["bench", "step", "--seconds", "0", "--json", str(path)])
    assert ran.exit_code == 0, ran.output
    figures = msgspec.json.decode(path.read_bytes(), type=list[step.Figure])
    assert all(figure.value > 0 and figure.unit in ("us", "ms") for figure in figures)
    assert [figure.bar for figure in figures if figure.bar] == [0.5, 1, 1, 50, 50]


def test_a_missed_bar_is_said_and_ends_with_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step, "per_call", lambda call, calls=1, repeats=1: 6.0)
    ran = CliRunner().invoke(app, ["bench", "step", "--seconds", "0"])
    assert ran.exit_code == 1 and "below 0.5 us: missed" in ran.output


def test_without_vllm_it_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ElasticError, match="tools/vllm-venv"):
        step.run(tmp_path)
