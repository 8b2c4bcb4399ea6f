"""The command: exit codes, the report, the traces, and what it says about inputs that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from elasticfsm.check.run import Options, check
from elasticfsm.errors import SpecError
from elasticfsm.patch import load_patch, shipped_patches

GROW = str(Path(__file__).parent / "grow.yaml")
LONGEST = 40  # lines of a printed trace


def told(specs: list[str], patches: list[str], **options: Any) -> tuple[int, str]:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    code = check(specs, patches, Options(**options), console)
    return code, console.export_text()


def test_a_protocol_that_holds_ends_with_0_and_says_up_to_which_sizes() -> None:
    code, text = told(["serving"], [], sizes=["1", "2"])
    assert code == 0
    assert "proved up to 2 (fault-free)" in text


def test_a_protocol_that_is_refuted_ends_with_1_and_shows_the_trace(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(
        Path(GROW)
        .read_text()
        .replace("done:     {sends: retired}", "done: {}")
        .replace(
            "ends: {done: {sends: retired}, aborted: {sends: aborted}}", "ends: {done: {}, aborted: {sends: aborted}}"
        )
    )
    code, text = told([str(wrong)], [], sizes=["1+1"])
    assert code == 1
    assert "=> good_end is refuted" in text
    assert "existing0: grow done" in text


def test_a_run_that_is_cut_short_is_inconclusive_and_ends_with_1() -> None:
    code, text = told([GROW], [], sizes=["1+1"], max_states=20)
    assert code == 1
    assert "inconclusive at 1+1 (fault-free)" in text


@pytest.mark.parametrize("path", shipped_patches(), ids=lambda path: path.stem)
def test_shipped_patches_are_refuted_as_they_say_with_a_trace_to_read(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    assert check([], [path.stem], Options(), Console(quiet=True), as_json=out) == 0
    named = load_patch(path)[0].refuted
    found = [run["refuted"][named] for run in json.loads(out.read_text())[0]["runs"] if named in run["refuted"]]
    assert found
    assert all(len(one["trace"]) < LONGEST for one in found)


def test_a_patch_that_is_not_refuted_ends_with_1(tmp_path: Path) -> None:
    patch = tmp_path / "harmless.yaml"
    patch.write_text(f"patch: harmless\nof: {GROW}\nsays: nothing\nrefuted: no_deadlock\nedits: []\n")
    code, text = told([], [str(patch)], sizes=["1+1"])
    assert code == 1
    assert "must be refuted by no_deadlock, and is not" in text


@pytest.mark.parametrize("sizes", ["0+1", "1", "a+b", "1+1+1"])
def test_sizes_that_do_not_fit_are_named(sizes: str) -> None:
    with pytest.raises(SpecError, match="expected a positive number for each of existing, new, as in 1\\+1"):
        told([GROW], [], sizes=[sizes])


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        ("{at: existing.nowhere, leave: {done: done}}", "no state `nowhere`"),
        ("{at: nobody.building, leave: {done: done}}", "no role `nobody`"),
        ("{at: existing.building, drop: experts.fly}", "no step `experts.fly` here; there is experts.stop"),
        ("{at: existing.prepared, add: experts.stop}", "has no list of steps"),
        (
            "{at: existing.prepared}",
            "expected one of leave, sends, add, drop, move, thread, states, starts, replace, put, within, serves, "
            "found none",
        ),
        ("{at: existing.prepared, leave: {received vote: nowhere}}", "after its edits"),
        ("{at: existing.joining, drop: state}", "after its edits"),
    ],
)
def test_an_edit_that_does_not_fit_names_file_line_and_what_is_missing(tmp_path: Path, edit: str, says: str) -> None:
    patch = tmp_path / "bad.yaml"
    patch.write_text(f"patch: bad\nof: {GROW}\nsays: nothing\nrefuted: no_deadlock\nedits:\n  - {edit}\n")
    with pytest.raises(SpecError, match=r"bad\.yaml") as error:
        told([], [str(patch)])
    assert says in str(error.value)


def test_a_patch_that_names_no_property_is_refused(tmp_path: Path) -> None:
    patch = tmp_path / "bad.yaml"
    patch.write_text(f"patch: bad\nof: {GROW}\nsays: nothing\nrefuted: no_deadlok\nedits: []\n")
    with pytest.raises(SpecError, match="no_deadlock"):
        told([], [str(patch)])


def test_ways_that_nothing_leads_to_are_an_error(tmp_path: Path) -> None:
    lost = tmp_path / "lost.yaml"
    text = (
        Path(GROW)
        .read_text()
        .replace("emptying:  {leave", "orphan:    {leave: {done: done}}\n          emptying:  {leave")
    )
    lost.write_text(text)
    code, told_ = told([str(lost)], [], sizes=["1+1"])
    assert code == 1
    assert "grow.coordinator.orphan: done" in told_
