"""The stage: micro-steps can be read back, and what the real objects cannot do is refused and changes nothing."""

from __future__ import annotations

import pytest

from elasticfsm.compile import program
from elasticfsm.testing.stage import Act, Impossible, Stage, read
from elasticfsm.testing.stage.act import PROCESS, Unreadable
from elasticfsm.testing.stage.view import view

SIZES = {"existing": 1, "new": 1}


@pytest.mark.parametrize(
    "act",
    [
        Act("existing0", "scale_up.existing", "takes", "received prepare", "coordinator"),
        Act("existing0", "serving.engine", "enters", "step.agree: active", "work"),
        Act("existing0", "serving.engine", "leaves", "step.agree: active"),
        Act("coordinator", "scale_up.coordinator", "does", "placement.check", "fits"),
        Act("new0", "scale_up.new", "fails", "groups.create: standby", "closing"),
        Act("new0", PROCESS, "dies", "here"),
        Act("coordinator", PROCESS, "loses", "built", "existing0"),
    ],
)
def test_a_line_reads_back_as_the_micro_step_that_it_was(act: Act) -> None:
    assert read(str(act)) == act


@pytest.mark.parametrize("line", ["", "existing0 dies", "existing0 serving.engine flies away"])
def test_a_line_that_is_no_micro_step_is_refused(line: str) -> None:
    with pytest.raises(Unreadable, match="expected WHO MACHINE"):
        read(line)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("existing0 scale_up.existing takes received prepare", "stands in `absent`"),
        ("existing0 serving.engine leaves step.forward: active", "its list stands before step.forward"),
        ("coordinator scale_up.coordinator does journal.write", "its list stands before placement.check"),
        ("coordinator scale_up.coordinator takes answer fits", "the main loop of coordinator is inside a list"),
        ("new0 scale_up.new takes received prepare", "new0 does not run"),
        ("new1 scale_up.new takes received prepare", "nobody is called new1"),
        ("existing0 scale_up.new takes done", "has no machine scale_up.new"),
        ("existing0 process loses prepare", "no such letter"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_no_machine(line: str, says: str) -> None:
    with Stage(program("scale_up"), SIZES) as stage:
        before = view(stage)
        with pytest.raises(Impossible, match=says):
            stage.act(read(line))
        after = view(stage)
        assert {name: one.machines for name, one in after.engines.items()} == {
            name: one.machines for name, one in before.engines.items()
        }
        assert after.coordinator == before.coordinator


def test_a_collective_is_left_only_when_all_have_entered() -> None:
    with Stage(program("rebalance"), {"engine": 2}) as stage:
        for step in ("enters step.forward: active",):
            stage.act(read(f"engine0 serving.engine {step}"))
        with pytest.raises(Impossible, match=r"waits in step.forward \(ep of :0, number 0\): engine1 missing"):
            stage.act(read("engine0 serving.engine leaves step.forward: active"))
        stage.act(read("engine1 serving.engine enters step.forward: active"))
        stage.act(read("engine0 serving.engine leaves step.forward: active"))
        assert stage.laws.refuted == {}
