"""The policy benchmark on its smallest cases, and what it says of a reference that is not there."""

import sys

import msgspec
import pytest

from elasticfsm import cli
from elasticfsm.errors import RequestRefused
from elasticfsm.runtime.bench.eplb import CaseReport, EplbReport, Figures, Reference, missed, run
from elasticfsm.runtime.bench.eplb_cases import CASES, LITE

SMALL = [case for case in CASES if case.model is LITE]


def test_every_small_case_is_measured_and_bounded_moves_least():
    report = run(cases=SMALL, repeats=1)
    assert [each.case for each in report.cases] == [case.name for case in SMALL]
    assert not report.missed
    for case in report.cases:
        bounded, balanced = case.figures("bounded"), case.figures("balanced")
        assert bounded.rows < balanced.rows and bounded.rows >= case.rows_bound
        assert bounded.gigabytes == pytest.approx(bounded.rows * LITE.expert_bytes / 1e9)


def test_equal_seeds_measure_equal_rows():
    first, second, other = (run(cases=SMALL[:1], seed=seed, repeats=1) for seed in (1, 1, 2))
    rows = [[each.rows for each in report.cases[0].policies] for report in (first, second, other)]
    assert rows[0] == rows[1] != rows[2]


def figures(policy, ms=1.0, of_balance=1.0, of_rows=1.0):
    known = {"balance": of_balance, "rows": 10, "gigabytes": 1.0, "of_slots": 0.1, "relabelled": 9}
    return Figures(policy=policy, ms=ms, of_balance=of_balance, of_rows=of_rows, received_by_one=1, **known)


@pytest.mark.parametrize(
    ("kind", "mine", "text"),
    [
        ("grow", {"of_rows": 1.2}, "1.20 x the least rows, expected 1.15"),
        ("loss", {"of_rows": 4.1}, "4.10 x the least rows, expected 4.0"),
        ("shrink", {"of_balance": 0.94}, "0.940 of the best balance, expected 0.95"),
        ("shrink", {"ms": 3.0}, "3 ms, DeepSeek's takes 2 ms"),
        ("shrink", {"of_rows": 1.3, "of_balance": 0.95, "ms": 2.0}, None),
    ],
)
def test_a_missed_bar_is_named(kind, mine, text):
    policies = [figures("bounded", **mine), figures("deepseek", ms=2.0)]
    case = CaseReport(
        case="x", kind=kind, speed_counts=True, stay=0.0, balance_bound=1.0, rows_bound=10, policies=policies
    )
    assert missed(case) == ([f"x: {text}"] if text else [])


def test_without_the_reference_the_text_says_how_to_get_it(tmp_path):
    with pytest.raises(RequestRefused, match="make it with tools/eplb-venv"):
        Reference(tmp_path)


def test_a_reference_that_ends_is_named_and_leaves_no_process(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "reference").mkdir()
    (tmp_path / "bin" / "python").symlink_to(sys.executable)
    with Reference(tmp_path) as reference, pytest.raises(RequestRefused, match="process with the reference policies"):
        reference.call("deepseek", *SMALL[0].setting(0))
    assert reference._process.returncode is not None


def test_the_command_prints_both_tables_and_writes_the_figures(tmp_path, monkeypatch, capsys):
    out = tmp_path / "eplb.json"
    monkeypatch.setattr(sys, "argv", ["elasticfsm", "bench", "eplb", "--only", "8 -> 4", "--json", str(out)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert "DSV2-Lite 8 -> 4, S16" in text and "bounded reaches every bar" in text
    assert msgspec.json.decode(out.read_bytes(), type=EplbReport).cases[0].kind == "shrink"
