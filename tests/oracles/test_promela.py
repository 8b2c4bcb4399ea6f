"""The exported model is the model that our explorer explores."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elasticfsm.check.world import sizes_of
from elasticfsm.cli import app
from elasticfsm.compile import compile_protocol, program
from elasticfsm.export import spin
from elasticfsm.export.promela import promela
from elasticfsm.patch import load_patch, patched
from elasticfsm.protocol import load, shipped

from .compare import compare

GROW = Path(__file__).parent.parent / "core" / "check" / "grow.yaml"
needs_spin = pytest.mark.skipif(not spin.available(), reason="SPIN or gcc is missing: tools/system-packages spin gcc")


def text_of(name: str, sizes: str, cancel: bool = False) -> str:
    whole = program(name)
    return promela(whole, sizes_of(whole, sizes), cancel)


@pytest.mark.parametrize("name", shipped())
def test_every_state_and_every_role_has_its_place_in_the_export(name: str) -> None:
    whole = program(name)
    text = text_of(name, "+".join("2" for _ in whole.roles))
    for role in whole.roles:
        assert f"active [2] proctype engine_{role}()" in text
    defined = set(re.findall(r"^#define (\w+) \d+$", text, re.MULTILINE))
    states = [state for machine in whole.machines.values() for state in machine.states]
    assert all(any(one.endswith(f"_{state}") for one in defined) for state in states)


def test_only_an_operation_that_may_be_cancelled_lets_the_operator_cancel() -> None:
    assert "#define CANCEL 0" in text_of("scale_up", "1+1")
    assert "#define CANCEL 1" in text_of("scale_up", "1+1", cancel=True)


def test_a_patch_changes_the_exported_model() -> None:
    whole = patched(*load_patch("kb06"))
    assert promela(whole, sizes_of(whole, "1+1")) != text_of("scale_up", "1+1")


def test_the_export_is_the_same_every_time() -> None:
    assert text_of("scale_down", "2+1") == text_of("scale_down", "2+1")


def test_the_command_writes_a_file_and_refuses_a_size_that_does_not_fit(tmp_path: Path) -> None:
    out = tmp_path / "serving.pml"
    done = CliRunner().invoke(app, ["export", "promela", "serving", "--sizes", "2", "--out", str(out)])
    assert done.exit_code == 0 and out.read_text() == text_of("serving", "2")
    refused = CliRunner().invoke(app, ["export", "promela", "serving", "--sizes", "1+1"])
    assert refused.exit_code != 0 and "does not fit serving" in str(refused.exception)


@needs_spin
def test_spin_stores_the_states_that_we_reach_and_reaches_our_verdicts() -> None:
    row = compare("serving", program("serving"), "2", False, limit=1000)
    assert row.spin.complete and row.spin.states == row.states == 57
    assert not row.disagree and not row.spin.refuted


@needs_spin
@pytest.mark.skipif(not os.environ.get("ELASTICFSM_DEEP"), reason="make check-deep")
def test_spin_stores_the_states_that_we_reach_where_a_member_closes_its_side_of_a_group() -> None:
    row = compare("grow", compile_protocol(load(GROW)), "1+1", True, limit=20_000)
    assert row.spin.complete and row.spin.states == row.states > 8_000
    assert not row.disagree and not row.spin.refuted


@needs_spin
def test_spin_refutes_a_patch_of_another_protocol_by_the_same_properties() -> None:
    row = compare("kb05", patched(*load_patch("kb05")), "1+1", False, limit=1000)
    assert row.spin.refuted == {"collective_order", "no_deadlock"} and not row.disagree


@needs_spin
@pytest.mark.parametrize(
    ("rule", "without", "told"),
    [
        (r"(release\(\S+ \S+\)); void_mail\([^)]*\)", r"\1", "states"),  # the end of a wave makes its wakes void
        (r"(:: d_step \{ RESTING) ->", r"\1 && 0 ->", "no_deadlock"),  # a deployment may rest for ever
    ],
    ids=["wakes outlive their wave", "rest is a deadlock"],
)
def test_a_rule_that_is_broken_in_the_export_is_a_disagreement(
    monkeypatch: pytest.MonkeyPatch, rule: str, without: str, told: str
) -> None:
    def broken(*given: object) -> str:
        text, count = re.subn(rule, without, promela(*given))  # type: ignore[arg-type]
        assert count
        return text

    monkeypatch.setattr(spin, "promela", broken)
    row = compare("serving", program("serving"), "2", False, limit=1000)
    assert any(told in line for line in row.disagree), row.disagree
