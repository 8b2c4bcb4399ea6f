"""A deployment of real engine processes that is gone after the test, whatever happened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from deployed import Running, gone

from elasticfsm.runtime.faults.zygote import Zygote


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    try:
        yield made
    finally:
        made.close()
        assert all(gone(pid) for pid in made.pids)


@pytest.fixture(scope="package")
def zygote() -> Iterator[Zygote]:
    """What engines may be forked from."""
    made = Zygote()
    try:
        yield made
    finally:
        made.close()
