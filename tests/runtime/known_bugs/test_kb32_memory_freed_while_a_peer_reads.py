"""KB32: the removing engine exits, and frees its memory, while a peer still reads experts from it."""

import os
import signal

import pytest
from deployed import BUSY

pytestmark = pytest.mark.slow


def test_an_engine_that_leaves_stays_until_the_last_read_from_it_has_ended_whoever_tells_it_to_go(running, tmp_path):
    hold = tmp_path / "hold"
    hold.mkdir()
    deployment = running.start(2, faults=(f"hold={hold}",), **BUSY | {"eplb": "off", "slots": 16})
    running.request(4, 60)
    operation = deployment.scale(1, remove=["e1"])
    running.until((hold / "layer-0").exists)  # e0 is about to read what only e1 has
    pid = deployment.status().pids["e1"]
    os.kill(pid, signal.SIGTERM)
    seen = len(deployment.samples)
    running.until(lambda: len(deployment.samples) > seen + 10)
    assert deployment.status().engines["e1"].states["scale_down.removing"] == "evacuating"
    assert deployment.status().pids.get("e1") == pid and not operation.ended
    for layer in range(4):
        (hold / f"go-{layer}").touch()
    assert operation.wait(60).phase == "completed"
    running.request(2, 40)
    running.right()
