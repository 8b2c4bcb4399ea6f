"""A wrong protocol file is named with file and line: some mistakes refuse it, others are found by lint."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from elasticfsm.errors import SpecError
from elasticfsm.lint import lint
from elasticfsm.protocol import load, shipped

TEXT = (Path(__file__).parent / "small.yaml").read_text()  # a protocol without a mistake
MISTAKES = yaml.safe_load((Path(__file__).parent / "mistakes.yaml").read_text())
REFUSED = {name: case for name, case in MISTAKES.items() if "refused" in case}
FOUND = {name: case for name, case in MISTAKES.items() if "found" in case}
ONLY_WARNING = "provides `cache agreed`: no step needs it"


def spoiled(folder: Path, old: str, new: str) -> Path:
    assert old in TEXT
    path = folder / "small.yaml"
    path.write_text(TEXT.replace(old, new, 1))
    return path


@pytest.mark.parametrize("name", REFUSED)
def test_loading_refuses_a_file_with(name: str, tmp_path: Path) -> None:
    case = REFUSED[name]
    path = spoiled(tmp_path, case["old"], case["new"])
    with pytest.raises(SpecError) as error:
        load(path)
    assert str(error.value).replace(str(path), "small.yaml").split("\n") == case["refused"]


@pytest.mark.parametrize("name", FOUND)
def test_lint_finds(name: str, tmp_path: Path) -> None:
    case = FOUND[name]
    path = spoiled(tmp_path, case["old"], case["new"])
    found = [str(entry).replace(str(path), "small.yaml") for entry in lint(load(path))]
    assert [line for line in found if ONLY_WARNING not in line] == case["found"]


def test_a_fact_that_nobody_needs_is_a_warning(tmp_path: Path) -> None:
    (entry,) = lint(load(spoiled(tmp_path, "protocol: small", "protocol: small")))
    assert entry.severity == "warning"
    assert ONLY_WARNING in str(entry)
    assert entry.line == 48


def test_several_unknown_names_are_reported_together(tmp_path: Path) -> None:
    path = tmp_path / "small.yaml"
    path.write_text(TEXT.replace("agreed switch", "agreed swich").replace("all ready", "all redy"))
    with pytest.raises(SpecError) as error:
        load(path)
    assert [line.split(": ")[0] for line in str(error.value).split("\n")] == [f"{path}:21", f"{path}:35"]


@pytest.mark.parametrize("name", shipped())
def test_shipped_protocols_have_no_errors(name: str) -> None:
    assert [str(entry) for entry in lint(load(name)) if entry.severity == "error"] == []
