"""A journal holds one JSON line per event, in order, and survives a half-written line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from elasticfsm.cli import main
from elasticfsm.errors import ElasticError
from elasticfsm.explain import explain
from elasticfsm.journal import Journal, merged, read
from elasticfsm.trace import validate


def test_events_come_back_in_order_with_everything_that_names_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "a", "i1")
    journal.operation, journal.generation = "up", 3
    journal.put("enter", "serving.engine", state="idle", came="")
    journal.operation = ""
    journal.put("told", votes=frozenset(["a"]), path=Path("/x"))
    journal.close()
    first, second, third = read(tmp_path)["a"]
    names = ("engine", "instance", "operation", "generation", "machine", "event", "state")
    assert {name: first[name] for name in names} == {
        "engine": "a",
        "instance": "i1",
        "operation": "up",
        "generation": 3,
        "machine": "serving.engine",
        "event": "enter",
        "state": "idle",
    }
    assert first["t"] <= second["t"] and first["wall"] > 1e9
    assert second["votes"] == ["a"] and second["path"] == "/x" and second["operation"] == ""
    assert third["event"] == "close"


def test_flush_writes_what_was_put_by_all_threads(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "a", "i")
    threads = [threading.Thread(target=lambda: [journal.put("x") for _ in range(200)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.flush()
    assert len(read(tmp_path)["a"]) == 800
    journal.sync()
    journal.close()
    journal.close()


def test_a_process_that_ends_without_closing_writes_everything(tmp_path: Path) -> None:
    code = f"from elasticfsm.journal import Journal; j = Journal({str(tmp_path)!r}, 'a', 'i'); j.put('last')"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert [event["event"] for event in read(tmp_path)["a"]] == ["last", "close"]


def test_a_line_that_a_dying_process_did_not_finish_is_left_out(tmp_path: Path) -> None:
    head = {"engine": "a", "operation": "", "machine": ""}
    whole = json.dumps({"t": 1, "event": "x", **head})
    (tmp_path / "a.jsonl").write_text(f'{whole}\n{{"t": 2, "ev')
    (tmp_path / "b.jsonl").write_text(json.dumps({"t": 0, "event": "y", **head}) + "\n")
    assert [event["event"] for event in merged(read(tmp_path))] == ["y", "x"]
    (tmp_path / "b.jsonl").write_text(f"{{broken\n{whole}\n")
    with pytest.raises(ElasticError, match=r"b.jsonl:1: not an event"):
        read(tmp_path)


def test_a_directory_without_journals_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ElasticError, match="no journals"):
        read(tmp_path)


WHOLE = {"t": 1, "engine": "a", "operation": "", "machine": "serving.engine", "event": "close"}
NO_EVENTS = {
    "another object": ({"x": 1}, "it has no `t`"),
    "a list": ([WHOLE], "not an event: Expected `object`"),
    "a number": (7, "not an event: Expected `object`"),
    "null": (None, "not an event: Expected `object`"),
    "a time in words": (WHOLE | {"t": "now"}, "its `t` is 'now', expected int"),
    "an event without its fields": (WHOLE | {"event": "enter"}, "it has no `state`"),
    "an event of another type": (WHOLE | {"event": ["enter"]}, "its `event` is"),
    "members as a number": (WHOLE | {"event": "generation", "of": ":1", "members": 2}, "its `members` is 2, expected"),
}


@pytest.mark.parametrize("command", [("trace", "check"), ("explain",)])
@pytest.mark.parametrize("name", NO_EVENTS)
def test_json_that_is_no_event_is_refused_with_its_line(
    name: str,
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line, said = NO_EVENTS[name]
    (tmp_path / "a.jsonl").write_text(f"{json.dumps(WHOLE)}\n{json.dumps(line)}\n")
    monkeypatch.setattr("sys.argv", ["elasticfsm", *command, str(tmp_path)])
    with pytest.raises(SystemExit) as ended:
        main()
    error = capsys.readouterr().err
    assert ended.value.code == 2 and "a.jsonl:2: not an event" in error and said in error and error.count("\n") == 1


def test_journals_of_engines_that_died_before_their_first_event_are_no_error(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    assert validate(tmp_path) == []
    assert explain(tmp_path).engines == ()
