"""KB11: the worker reads into the layer buffer again before the main loop has copied it."""

import pytest
from deployed import BUSY, totals

pytestmark = pytest.mark.slow


def spans(events, step):
    """(begin, end) of every run of a step."""
    named = [event for event in events if str(event.get("step", "")).startswith(step)]
    begins = [event["t"] for event in named if event["event"] == "step.begin"]
    return list(zip(begins, [event["t"] for event in named if event["event"] == "step.end"], strict=False))


def test_rows_that_are_put_in_place_slowly_are_never_overwritten_by_the_next_read(running):
    deployment = running.start(2, faults=("slow-apply",), **BUSY)
    running.request(4, 60)
    running.until(lambda: totals(deployment, "layers_moved").get("e1", 0) >= 5)
    running.right()
    applied, read = (spans(running.events("e1"), f"experts.{step}") for step in ("apply", "read"))
    assert max(end - begin for begin, end in applied) > 0.1e9  # so slowly that a read would have fitted in
    assert not [1 for begin, end in applied for first, last in read if first < end and begin < last]
