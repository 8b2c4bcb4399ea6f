"""The monitor refuses what the spec does not allow next, before it is issued."""

from __future__ import annotations

import threading
import timeit
from collections.abc import Mapping
from typing import Any

import pytest

from elasticfsm.errors import Refused
from elasticfsm.monitor import Monitor, Violation
from elasticfsm.protocol import Step


class Notes:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, dict[str, Any]]] = []

    def put(self, event: str, machine: str = "", /, **fields: object) -> None:
        self.events.append((event, machine, fields))

    def note(self, event: str, machine: str, fields: Mapping[str, object], /) -> None:
        self.put(event, machine, **fields)

    def flush(self) -> None:
        pass


def monitor(mode: Any = "guard", **more: Any) -> tuple[Monitor, Notes]:
    notes = Notes()
    watch = Monitor("a", notes, mode, **more)
    watch.generations = {"active": ":1", "standby": "up:2"}
    return watch, notes


def issue(watch: Monitor, *ops: str, label: str) -> None:
    for op in ops:
        watch.before(label, op)
        watch.after(label, op)


def test_the_collectives_of_a_step_are_allowed_in_their_order() -> None:
    watch, notes = monitor()
    watch.begin_step("scale_up.existing", "posting", Step("rehearsal.post", "standby"))
    assert watch.expected() == "all_gather on ep.standby"
    issue(watch, "all_gather", "reduce_scatter", label="ep.standby")
    watch.end_step()
    assert [event for event, _, _ in notes.events] == ["collective.before", "collective.after"] * 2
    assert notes.events[0][2] == {
        "state": "posting",
        "step": "rehearsal.post: standby",
        "group": "ep.standby",
        "op": "all_gather",
        "of": "up:2",
        "error": "",
    }


@pytest.mark.parametrize("layers", [0, 1, 5])
def test_a_forward_step_issues_whole_layers(layers: int) -> None:
    watch, _ = monitor()
    watch.begin_step("serving.engine", "stepping", Step("step.forward", "active"))
    issue(watch, *["all_gather", "reduce_scatter"] * layers, label="ep.active")
    watch.end_step()


def test_half_a_layer_is_refused_at_the_end_of_the_step() -> None:
    watch, _ = monitor()
    watch.begin_step("serving.engine", "stepping", Step("step.forward", "active"))
    issue(watch, "all_gather", "reduce_scatter", "all_gather", label="ep.active")
    with pytest.raises(Refused, match=r"refused the end of the step on ep.active; the spec expects reduce_scatter"):
        watch.end_step()


def test_a_step_that_failed_may_end_anywhere() -> None:
    watch, _ = monitor()
    watch.begin_step("serving.engine", "stepping", Step("step.agree", "active"))
    watch.end_step(succeeded=False)
    assert watch.violations == []


@pytest.mark.parametrize(
    ("label", "op"),
    [("dp.active", "broadcast"), ("ep.active", "all_reduce"), ("dp.standby", "all_reduce"), ("dp.active", "send")],
)
def test_another_operation_or_group_is_refused_before_it_is_issued(label: str, op: str) -> None:
    told: list[Violation] = []
    watch, notes = monitor(on_refused=told.append)
    watch.begin_step("serving.engine", "stepping", Step("step.agree", "active"))
    with pytest.raises(Refused) as error:
        watch.before(label, op)
    words = ("engine a", "serving.engine in `stepping`", "step `step.agree: active`", f"refused {op} on {label}")
    assert all(word in str(error.value) for word in (*words, "expects all_reduce on dp.active", "it was not issued"))
    assert (
        told
        == watch.violations
        == [Violation("a", "serving.engine", "stepping", "step.agree: active", label, "all_reduce on dp.active", op)]
    )
    assert [event for event, _, _ in notes.events] == ["refused"] and watch.waiting() == []


def test_one_collective_too_many_is_refused() -> None:
    watch, _ = monitor()
    watch.begin_step("serving.engine", "stepping", Step("step.agree", "active"))
    issue(watch, "all_reduce", label="dp.active")
    with pytest.raises(Refused, match="expects the end of the step"):
        watch.before("dp.active", "all_reduce")


def test_a_collective_outside_of_any_step_is_refused_also_on_another_thread() -> None:
    watch, _ = monitor()
    watch.begin_step("serving.engine", "stepping", Step("step.agree", "active"))
    errors: list[BaseException] = []

    def other() -> None:
        try:
            watch.before("dp.active", "all_reduce")
        except Refused as error:
            errors.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert "outside of any step" in str(errors[0]) and "expects no collective" in str(errors[0])


def test_the_creation_of_groups_issues_nothing() -> None:
    watch, _ = monitor()
    watch.begin_step("scale_up.existing", "building", Step("groups.create", "standby"))
    with pytest.raises(Refused):
        watch.before("world.standby", "all_reduce")


def test_observe_notes_a_violation_and_lets_it_pass() -> None:
    watch, notes = monitor("observe")
    watch.before("dp.active", "all_reduce")
    assert len(watch.violations) == 1
    assert [event for event, _, _ in notes.events] == ["refused", "collective.before"]


def test_data_between_two_engines_moves_only_in_a_step_that_awaits() -> None:
    watch, _ = monitor()
    watch.begin_step("scale_up.new", "building", Step("weights.read", "existing"))
    issue(watch, "recv", label="world.standby")
    watch.end_step()
    assert watch.violations == []


def test_waiting_tells_what_was_entered_and_not_left() -> None:
    times = iter(range(10, 100, 10))
    watch, _ = monitor(clock=lambda: next(times))
    watch.begin_step("scale_up.existing", "posting", Step("rehearsal.post", "standby"))
    watch.before("ep.standby", "all_gather")
    watch.before("ep.standby", "reduce_scatter")
    watch.end_step()
    watch.after("ep.standby", "all_gather")
    assert [tuple(one) for one in watch.waiting()] == [("ep.standby", "reduce_scatter", 20)]


def test_an_event_costs_microseconds() -> None:
    watch, _ = monitor()
    watch._journal.put = lambda *event, **fields: None  # type: ignore[method-assign]
    watch.begin_step("serving.engine", "stepping", Step("step.forward", "active"))
    count = 2000
    seconds = timeit.timeit(lambda: issue(watch, "all_gather", "reduce_scatter", label="ep.active"), number=count)
    print(f"{seconds / count / 4 * 1e6:.2f} us per event")  # read it with -s; load must not fail it
