"""From journals of a run that stands still: who waits for whom, since when, and what the spec expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from elasticfsm.cli import app
from elasticfsm.explain import explain, text

SECOND = 1_000_000_000


def write(directory: Path, engine: str, *events: tuple[float, str, str, dict[str, Any]]) -> None:
    head = {"engine": engine, "instance": "i", "operation": "", "generation": 1}
    lines = [
        json.dumps({**head, "t": int(at * SECOND), "machine": machine, "event": event, **fields}) + "\n"
        for at, event, machine, fields in events
    ]
    (directory / f"{engine}.jsonl").write_text("".join(lines))


MEMBERS = {"of": ":1", "members": ["a", "b"]}
STEPPING = {"state": "stepping", "came": "idle"}
AGREE = {"state": "stepping", "step": "step.agree: active", "index": 1}
REDUCE = {"group": "dp.active", "op": "all_reduce", "of": ":1", "error": "", **AGREE}


def hung(directory: Path) -> Path:
    """a stands in the agreement of a step; b left for the join, alone."""
    write(
        directory,
        "a",
        (1.0, "generation", "", MEMBERS),
        (2.0, "enter", "serving.engine", STEPPING),
        (2.5, "step.begin", "serving.engine", AGREE),
        (3.0, "collective.before", "serving.engine", REDUCE),
    )
    join = {"state": "joining", "step": "groups.join: standby", "index": 1}
    write(
        directory,
        "b",
        (1.0, "generation", "", MEMBERS),
        (2.0, "enter", "scale_up.existing", {"state": "joining", "came": "voting"}),
        (9.0, "failed", "scale_up.existing", {**join, "error": "first line\nnobody came"}),
        (10.0, "close", "", {}),
    )
    return directory


def test_it_names_the_collective_the_engine_that_never_entered_and_since_when(tmp_path: Path) -> None:
    explanation = explain(hung(tmp_path))
    (wait,) = explanation.waits
    assert (wait.engine, wait.machine, wait.state, wait.missing) == ("a", "serving.engine", "stepping", ("b",))
    assert wait.seconds == 7.0 and "all_reduce on dp.active" in wait.what
    assert explanation.blamed == ("b",)


def test_it_says_where_the_blamed_engine_stood_and_what_the_spec_expected_there(tmp_path: Path) -> None:
    said = text(explain(hung(tmp_path)))
    assert "a: serving.engine in `stepping` waits since 7.00 s for all_reduce on dp.active" in said
    assert "others wait for b, who wait for nobody" in said
    assert "scale_up.existing in `joining` since 8.00 s" in said
    assert "the spec expects done -> confirming, or failed -> confirming" in said
    assert "last error: nobody came" in said
    assert "a: last event 7.00 s before the end of the run" in said and "its journal was not closed" in said


def test_an_engine_that_died_is_named_and_waits_for_nobody_although_its_journal_ends_in_a_wait(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a",
        (1.0, "generation", "", MEMBERS),
        (3.0, "enter", "scale_up.existing", {"state": "voting", "came": "stilling"}),
    )
    write(
        tmp_path,
        "b",
        (1.0, "generation", "", MEMBERS),
        (3.0, "enter", "scale_up.existing", {"state": "draining", "came": "prepared"}),
    )
    write(tmp_path, "coordinator", (5.0, "dead", "", {"source": "b", "error": "its process ended with status -9"}))
    explanation = explain(tmp_path)
    assert explanation.blamed == ("b",)
    assert {wait.engine for wait in explanation.waits} == {"a"}
    assert "b died: its process ended with status -9" in text(explanation)


def test_a_posted_collective_that_was_left_is_nothing_to_wait_for(tmp_path: Path) -> None:
    write(
        tmp_path,
        "a",
        (1.0, "collective.before", "serving.engine", REDUCE),
        (2.0, "collective.after", "serving.engine", REDUCE),
    )
    assert explain(tmp_path).waits == () and "nobody waits for anybody" in text(explain(tmp_path))


def test_a_vote_that_is_never_full_names_those_who_do_not_cast_it(tmp_path: Path) -> None:
    for engine, state in (("a", "voting"), ("b", "draining")):
        write(
            tmp_path,
            engine,
            (1.0, "generation", "", MEMBERS),
            (3.0, "enter", "scale_up.existing", {"state": state, "came": "stilling"}),
        )
    waits = {(wait.engine, wait.what, wait.missing) for wait in explain(tmp_path).waits}
    assert waits == {("a", "agreed switch", ("b",)), ("b", "agreed drain", ("a",))}


def test_the_command_prints_text_or_json(tmp_path: Path) -> None:
    hung(tmp_path)
    plain = CliRunner().invoke(app, ["explain", str(tmp_path)])
    assert plain.exit_code == 0 and "never came: b" in plain.output
    found = json.loads(CliRunner().invoke(app, ["explain", "--json", str(tmp_path)]).output)
    assert found["waits"][0]["missing"] == ["b"] and found["blamed"] == ["b"]
