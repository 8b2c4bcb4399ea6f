"""A protocol file is read as it is written, and its phases give their exits to every state."""

from __future__ import annotations

from pathlib import Path

import pytest

from elasticfsm.errors import SpecError
from elasticfsm.protocol import Guard, load, shipped
from elasticfsm.reading import Document, read


@pytest.mark.parametrize("word", ["on", "off", "no", "yes", "y", "n", "1:30", "0o17"])
def test_words_of_yaml_1_1_stay_words(word: str) -> None:
    document = Document(Path("x.yaml"), f"{word}: {word}\n")
    assert document.data == {word: word}


def test_true_and_numbers_are_what_they_look_like() -> None:
    assert Document(Path("x.yaml"), "a: true\nb: 12\nc: -1.5\n").data == {"a": True, "b": 12, "c": -1.5}


def test_a_state_may_be_called_off() -> None:
    assert "off" in load("rebalance").machines["main"].states


def test_a_key_that_stands_twice_is_refused_at_any_depth() -> None:
    with pytest.raises(SpecError, match=r"x\.yaml:3: the key `b` stands here twice"):
        Document(Path("x.yaml"), "a:\n  b: 1\n  b: 2\n")


def test_a_missing_file_is_named() -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml: no such file"):
        read("nowhere.yaml")


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- protocol\n")
    with pytest.raises(SpecError, match=r"list\.yaml:1: expected a mapping with the key `protocol`, found a list"):
        read(tmp_path / "list.yaml")


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.yaml").write_text("")
    with pytest.raises(SpecError, match="found nothing"):
        read(tmp_path / "empty.yaml")


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SpecError, match="cannot be read"):
        read(tmp_path / "bytes.yaml")


def test_a_phase_gives_its_exits_to_every_state_after_the_states_own() -> None:
    state = load("scale_up").machines["existing"].states["built"]
    assert [str(way.guard) for way in state.leave if not way.shared] == ["received align"]
    assert Guard("received", "withdraw") in [way.guard for way in state.leave if way.shared]


def test_an_own_leave_wins_over_that_of_the_phase() -> None:
    ways = load("scale_up").machines["existing"].states["joining"].leave
    assert [(way.target, way.shared) for way in ways if way.guard.kind == "failed"] == [("confirming", False)]


def test_protocols_come_in_the_order_in_which_they_build_on_each_other() -> None:
    assert shipped() == ["serving", "rebalance", "scale_up", "scale_down"]
