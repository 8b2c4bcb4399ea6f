"""Counterexamples as files: they reproduce on the real objects, and not with a protocol that is right."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from elasticfsm.check.run import Options, check
from elasticfsm.testing.stage import NotReproduced, reproduce

DOCUMENTS = Path(__file__).parents[3] / "docs" / "counterexamples"
RIGHT = {  # patch -> the protocol that it breaks, and from which micro-step on that cannot follow
    "kb04": ("scale_up", "scale_up.existing enters placement.share"),
    "kb05": ("variants/kb05/merged", "merged.remaining enters groups.carve"),
    "kb06": ("scale_up", "scale_up.existing enters placement.share"),
    "kb39": ("scale_up", "scale_up.existing enters groups.join"),
}
NAMED = {
    "kb04": "no_deadlock",
    "kb05": "no_deadlock",
    "kb06": "no_transfer_at_switch",
    "kb39": "no_deadlock",
}


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each patch a folder with its counterexamples, and what was printed."""
    folders = {}
    for patch in RIGHT:
        out = tmp_path_factory.mktemp(patch)
        with (out / "printed").open("w") as file:
            assert check([], [patch], Options(counterexamples=out), Console(width=200, file=file)) == 0
        folders[patch] = out
    return folders


@pytest.mark.slow
def test_every_generated_test_reproduces_its_violation(written: dict[str, Path]) -> None:
    tests = [path for folder in written.values() for path in folder.glob("test_*.py")]
    assert len(tests) >= 2 * len(RIGHT)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, *map(str, tests)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stdout
    assert f"{len(tests)} passed" in done.stdout


@pytest.mark.parametrize("patch", RIGHT)
def test_with_the_protocol_that_is_right_the_trace_cannot_be_followed(
    written: dict[str, Path], patch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, where = RIGHT[patch]
    monkeypatch.setenv("ELASTICFSM_SPEC", spec)
    path = next(path for path in written[patch].glob("test_*.py") if NAMED[patch] in path.name)
    with pytest.raises(NotReproduced, match="cannot be done") as error:
        runpy.run_path(str(path))[path.stem]()
    assert where in str(error.value)


@pytest.mark.parametrize("patch", RIGHT)
def test_a_trace_that_refutes_nothing_is_no_reproduction(written: dict[str, Path], patch: str) -> None:
    path = next(path for path in written[patch].glob("test_*.py") if NAMED[patch] in path.name)
    found = runpy.run_path(str(path))
    trace = "\n".join(found["TRACE"].strip().splitlines()[:-1])
    with pytest.raises(NotReproduced, match="holds there"):
        reproduce(found["SPEC"], found["SIZES"], NAMED[patch], trace, {})
    with pytest.raises(NotReproduced, match="the trace says nowhere"):
        reproduce(found["SPEC"], found["SIZES"], NAMED[patch], trace, {"coordinator": {"nobody": "nowhere"}})


@pytest.mark.parametrize("patch", RIGHT)
def test_text_names_who_acts_shows_what_changes_and_says_how_to_get_it_again(
    written: dict[str, Path], patch: str
) -> None:
    again = f"elasticfsm check --patch {patch} --sizes"
    assert again in (written[patch] / "printed").read_text()
    (path,) = written[patch].glob(f"*_{NAMED[patch]}.txt")
    lines = path.read_text().splitlines()
    assert lines[1].startswith(f"again with: {again}")
    full = [line for line in lines if line.lstrip()[:1].isdigit()]
    assert [int(line.split()[0]) for line in full] == list(range(1, len(full) + 1))
    assert any("coordinator" in line and " → " in line for line in full)
    assert f"=> {NAMED[patch]} is refuted:" in lines


@pytest.mark.parametrize("patch", RIGHT)
def test_charts_have_a_column_for_everybody(written: dict[str, Path], patch: str) -> None:
    for path in written[patch].glob("*.mmd"):
        lines = path.read_text().splitlines()
        everybody = [line.split()[1] for line in lines if line.startswith("  participant")]
        assert everybody[0] == "coordinator" and len(everybody) >= 3
        drawn = "".join(ElementTree.parse(path.with_suffix(".svg")).getroot().itertext())
        assert all(name in drawn for name in everybody)
        assert "is refuted" in drawn


def test_the_example_of_the_documents_is_what_is_written_now(written: dict[str, Path]) -> None:
    """After a wanted change `ELASTICFSM_GOLDEN=write pytest tests/core/check/test_counterexamples.py` copies it."""
    for path in sorted(written["kb05"].glob("*kb05_no_deadlock.*")):
        now = path.read_text().replace(str(written["kb05"]), "DIR")
        if os.environ.get("ELASTICFSM_GOLDEN") == "write":
            (DOCUMENTS / path.name).write_text(now)
        assert (DOCUMENTS / path.name).read_text() == now, path.name
