"""One deployment for all tests of known bugs: whatever one of them breaks, the next one finds whole again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployed import Running, gone

from elasticfsm.runtime.faults.cells import all_cells
from elasticfsm.runtime.faults.rig import Rig, Rigged
from elasticfsm.runtime.faults.suite import Suite

SAMPLE = ("kb11", "kb13", "kb16", "kb18", "kb24", "kb31", "kb32", "kb33", "kb45")  # the others: make faults
CELLS = {cell.name: cell for cell in all_cells()}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make test` has minutes only: of the tests that use deployments with faults it runs a sample."""
    for item in items:
        name = item.path.stem.split("_")[1] if item.path.parent == Path(__file__).parent else ""
        if name and "shared" in getattr(item, "fixturenames", ()) and name not in SAMPLE:
            item.add_marker(pytest.mark.skipif(not os.environ.get("ELASTICFSM_DEEP"), reason="make faults"))


class Shared:
    """The fault suite for tests: single cells, and the deployment between them."""

    def __init__(self) -> None:
        self.rig = Rig(0.2)
        self.rig.learn_answers()
        self.suite = Suite(self.rig)

    def survives(self, name: str, *outcomes: str) -> str:
        """Run a cell of the fault suite with all its checks; the outcome must be one of these. What was said."""
        result = self.suite.one(CELLS[name])
        assert result.problems == [], f"{name}: {result.problems}; said: {result.error}"
        assert result.outcome in outcomes
        return result.error

    def at(self, size: int) -> Rigged:
        """The deployment, with so many engines."""
        return self.suite.at(size)

    def rescale(self, size: int) -> None:
        """An operation without a fault, which must complete."""
        deployment = self.at(5 - size)
        record = deployment.scale(size).wait(60)
        assert record.phase == "completed", record.error
        assert self.rig.agree(deployment, deployment.members) == []


@pytest.fixture
def running(shared: Shared, tmp_path: Path) -> Iterator[Running]:
    """Deployments with faults or options of their own, forked from the same process."""
    made = Running(tmp_path).fork_from(shared.rig.zygote)
    try:
        yield made
    finally:
        made.close()
        assert all(gone(pid) for pid in made.pids)


@pytest.fixture(scope="package")
def shared() -> Iterator[Shared]:
    made = Shared()
    try:
        yield made
        assert made.suite.shut() == []
    finally:
        made.rig.close()
