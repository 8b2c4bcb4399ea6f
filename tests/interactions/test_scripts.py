"""Interaction scripts: the transcript of every scenario is what the real objects do now.

After a wanted change `ELASTICFSM_GOLDEN=write pytest tests/interactions` writes the transcripts anew; review the diff.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from elasticfsm.seat import Seat
from elasticfsm.testing.stage.script import Player, Wrong, play
from elasticfsm.trace import validate

SCRIPTS = sorted(Path(__file__).parent.glob("*.txt"))
PAGE = Path(__file__).parents[2] / "docs" / "scenarios.md"


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Steps fail here on purpose; the interpreter need not warn of it. No thread may be left over."""
    before = set(threading.enumerate())
    log = logging.getLogger("elasticfsm.runtime.interpreter")
    level = log.level
    log.setLevel(logging.CRITICAL)
    yield
    log.setLevel(level)
    assert {thread.name for thread in set(threading.enumerate()) - before} == set()


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_transcript_is_what_happens(path: Path, tmp_path: Path) -> None:
    told = play(path.read_text(), journals=tmp_path)
    if os.environ.get("ELASTICFSM_GOLDEN") == "write":
        path.write_text(told)
    assert told == path.read_text()
    assert "REFUTED" not in told
    assert told.startswith("# ")
    assert "\nstatus\n----\n" in told
    unended = path.stem.startswith("crash_of_a") or path.stem == "growth_impossible"  # dead, or never told
    findings = [str(one) for one in validate(tmp_path)]
    assert [text for text in findings if not (unended and text.endswith(("never ended", "aborted on new0")))] == []


def test_the_page_of_scenarios_lists_each_of_them_and_every_command() -> None:
    page = PAGE.read_text()
    assert [path.name for path in SCRIPTS if f"(../tests/interactions/{path.name})" not in page] == []
    commands = [name.removeprefix("do_") for name in dir(Player) if name.startswith("do_")]
    assert [name for name in commands if f"`{name}" not in page] == []


def test_a_broken_machine_changes_the_transcript(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seat, "agree", lambda self, full: False)
    with pytest.raises(Wrong, match="run until coordinator voting: it stands in aligning"):
        play((Path(__file__).parent / "growth.txt").read_text())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("run\n", "the first command of a script is `engines"),
        ("engines scale_up existing=1 new=1\n\nfly away\n", "no command `fly`; there are advance, answer, cancel"),
        ("engines scale_up existing=1 new=1\n\nrepeat vote to existing0\n", "no vote was sent to existing0"),
        ("engines scale_up existing=1 new=1\n\nscale\n\nrun until new0 sleeping\n", "it stands in"),
    ],
)
def test_a_script_that_is_wrong_is_refused_in_words(text: str, says: str) -> None:
    with pytest.raises(Wrong, match=says):
        play(text)
