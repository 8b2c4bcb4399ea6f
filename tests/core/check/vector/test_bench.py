"""`elasticfsm bench check` measures what it says, and refuses what it cannot measure."""

from __future__ import annotations

from pathlib import Path

import msgspec
from typer.testing import CliRunner

from elasticfsm.bench import checker
from elasticfsm.check.world import CALM
from elasticfsm.cli import app


def test_the_bench_measures_verdicts_both_explorers_sizes_and_spin(tmp_path: Path, monkeypatch: object) -> None:
    monkeypatch.setattr(checker, "RACES", (("serving", "3", CALM, False, None),))  # type: ignore[attr-defined]
    monkeypatch.setattr(checker.spin, "available", lambda: False)  # type: ignore[attr-defined]
    out = tmp_path / "figures.json"
    done = CliRunner().invoke(app, ["bench", "check", "serving", "--repeats", "1", "--json", str(out)])
    assert done.exit_code == 0, done.output
    report = msgspec.json.decode(out.read_bytes(), type=checker.Report)
    assert "no_deadlock" in report.for_all[0].proved and not report.for_all[0].not_proved
    assert [one.sizes for one in report.verdicts] == ["1", "2"] and all(one.holds for one in report.verdicts)
    assert report.races[0].states > 100 and report.races[0].plain > 0 and report.races[0].vector > 0
    assert report.reaches[0].sizes == checker.LADDER[1][-1] and not report.reaches[0].not_finished
    assert "SPIN or gcc is missing" in done.output


def test_a_size_that_takes_too_long_is_named_with_what_it_came_to() -> None:
    found = next(checker._reaches("serving", 0.0, lambda line: None))
    assert found.sizes == "none" and found.not_finished.startswith("1 ")


def test_a_protocol_that_is_not_shipped_is_refused() -> None:
    done = CliRunner().invoke(app, ["bench", "check", "nothing"])
    assert "nothing: no shipped protocol; there are" in str(done.exception)
