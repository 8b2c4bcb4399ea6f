"""A journal that deviates from the spec in one place yields the finding for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from elasticfsm.cli import app
from elasticfsm.trace import validate

Event = dict[str, Any]

AGREE = {"state": "stepping", "step": "step.agree: active"}
FORWARD = {"state": "stepping", "step": "step.forward: active"}


def serving(engine: str) -> list[Event]:
    """An engine of two that takes one step and goes idle, as its interpreter notes it."""

    def event(name: str, machine: str = "serving.engine", **fields: Any) -> Event:
        return {"t": 0, "engine": engine, "operation": "", "generation": 1, "machine": machine, "event": name, **fields}

    def collective(op: str, group: str, step: Event) -> list[Event]:
        both = {"group": group, "op": op, "of": ":1", "error": "", **step}
        return [event("collective.before", **both), event("collective.after", **both)]

    events = [
        event("generation", "", of=":1", members=["a", "b"]),
        event("enter", state="stepping", came=""),
        event("step.begin", index=0, **FORWARD),
        *collective("all_gather", "ep.active", FORWARD),
        *collective("reduce_scatter", "ep.active", FORWARD),
        event("step.end", index=0, answer="", **FORWARD),
        event("step.begin", index=1, **AGREE),
        *collective("all_reduce", "dp.active", AGREE),
        event("step.end", index=1, answer="empty", **AGREE),
        event("agreed", of=":1", number=0, votes=[], cast=[], answer="empty"),
        event("leave", state="stepping", guard="answer empty", to="idle"),
        event("enter", state="idle", came="stepping"),
        event("leave", state="idle", guard="wanted", to="waking"),
        event("enter", state="waking", came="idle"),
        event("send", message="wake", receiver="serving.engine"),
        event("leave", state="waking", guard="done", to="stepping"),
        event("enter", state="stepping", came="waking"),
    ]
    return [each | {"t": t} for t, each in enumerate(events)]


def find(events: list[Event], name: str, number: int = 0) -> Event:
    return [event for event in events if event["event"] == name][number]


def write(directory: Path, *engines: list[Event]) -> Path:
    for events in engines:
        text = "".join(json.dumps(event) + "\n" for event in events)
        (directory / f"{events[0]['engine']}.jsonl").write_text(text)
    return directory


def operation(events: list[Event], end: str) -> list[Event]:
    base = {**events[0], "operation": "up", "machine": "scale_up.existing"}
    more = [{**base, "event": "operation.begin"}]
    return [*events, *more, *([{**base, "event": "operation.end", "end": end}] if end else [])]


DEVIATIONS: dict[str, tuple[Callable[[list[Event]], Any], str]] = {
    "edge": (lambda e: find(e, "leave").update(to="waking"), "by `answer empty` is no edge"),
    "guard": (lambda e: find(e, "leave").update(guard="answer work"), "is no edge"),
    "stood": (lambda e: find(e, "leave", 1).update(state="waking"), "left `waking` but stood in `idle`"),
    "state": (lambda e: find(e, "enter", 1).update(state="sleeping"), "entered `sleeping`, which the spec lacks"),
    "began": (lambda e: find(e, "enter").update(state="idle"), "an engine that serves already begins in `stepping`"),
    "again": (lambda e: find(e, "enter", 3).update(came="absent"), "started in `stepping` while it stood in `waking`"),
    "machine": (lambda e: find(e, "enter").update(machine="serving.king"), "the spec has no such machine"),
    "step": (
        lambda e: e.remove(find(e, "step.begin")),
        "began step `step.agree: active` in `stepping`, the spec",
    ),
    "unsent": (lambda e: e.remove(find(e, "send")), "left `waking` without having sent `wake`"),
    "sent": (lambda e: find(e, "send").update(message="broken"), "sent `broken` in `waking`, which does not send it"),
    "issues": (lambda e: e.remove(find(e, "collective.before")), "issued reduce_scatter, expected whole layers of"),
    "order": (lambda e: find(e, "collective.before", 2).update(op="broadcast"), "collective 0 of dp of :1 is"),
    "outside": (
        lambda e: find(e, "collective.before").update(machine=""),
        "on ep.active outside of any step",
    ),
    "agreed": (lambda e: find(e, "agreed").update(answer="work"), "step 0 of :1 agreed on"),
    "cast": (lambda e: find(e, "agreed").update(votes=["switch"]), "are full, but this engine cast"),
    "members": (lambda e: find(e, "generation").update(members=["b"]), "used ep of :1, whose members are b"),
}


def test_a_run_that_the_spec_allows_has_no_finding(tmp_path: Path) -> None:
    assert validate(write(tmp_path, serving("a"), serving("b"))) == []
    result = CliRunner().invoke(app, ["trace", "check", str(tmp_path)])
    assert result.exit_code == 0 and "valid: 40 events of 2 journals" in result.output


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_is_found(name: str, tmp_path: Path) -> None:
    change, expected = DEVIATIONS[name]
    a, b = serving("a"), serving("b")
    change(b if name != "members" else a)
    if name == "members":
        b.pop(0)
    texts = [str(finding) for finding in validate(write(tmp_path, a, b))]
    assert any(expected in text for text in texts), texts
    assert CliRunner().invoke(app, ["trace", "check", str(tmp_path)]).exit_code == 1


def test_ends_that_contradict_and_operations_without_an_end_are_found(tmp_path: Path) -> None:
    write(tmp_path, operation(serving("a"), "done"), operation(serving("b"), "aborted"))
    assert "operation up ended as done on a, aborted on b" in str(validate(tmp_path)[0])
    write(tmp_path, operation(serving("a"), "done"), operation(serving("b"), ""))
    assert "operation up began here and never ended" in str(validate(tmp_path)[0])
