"""Fixtures for tests with real processes."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # so that children of the fork server can import `processes`, too

from processes import Processes


@pytest.fixture
def processes() -> Iterator[Processes]:
    """Start processes with it; all of them are gone after the test, also when it failed."""
    started = Processes()
    try:
        yield started
    finally:
        started.end()
