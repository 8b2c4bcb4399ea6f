"""A journal holds one JSON line per event, in order, and survives a half-written line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from elasticfsm.errors import ElasticError
from elasticfsm.journal import Journal, merged, read


def test_events_come_back_in_order_with_everything_that_names_them(tmp_path: Path) -> None:
    journal = Journal(tmp_path, "a", "i1")
    journal.operation, journal.generation = "up", 3
    journal.put("enter", "serving.engine", state="idle")
    journal.operation = ""
    journal.put("agreed", votes=frozenset(["a"]), path=Path("/x"))
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
    whole = json.dumps({"t": 1, "event": "x"})
    (tmp_path / "a.jsonl").write_text(f'{whole}\n{{"t": 2, "ev')
    (tmp_path / "b.jsonl").write_text(json.dumps({"t": 0, "event": "y"}) + "\n")
    assert [event["event"] for event in merged(read(tmp_path))] == ["y", "x"]
    (tmp_path / "b.jsonl").write_text(f"{{broken\n{whole}\n")
    with pytest.raises(ElasticError, match=r"b.jsonl:1: not an event"):
        read(tmp_path)


def test_a_directory_without_journals_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ElasticError, match="no journals"):
        read(tmp_path)
