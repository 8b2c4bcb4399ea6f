"""Fixtures for tests of the process groups."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from processes import Child, Processes

from elasticfsm.runtime.store import StoreServer


@pytest.fixture
def store() -> Iterator[StoreServer]:
    server = StoreServer()
    yield server
    server.close()


@pytest.fixture
def engines(processes: Processes, store: StoreServer) -> Callable[..., list[Child]]:
    """Start one child per rank: engines(function, size, **arguments)."""

    def start(function: Callable[..., Any], size: int, **arguments: Any) -> list[Child]:
        members = [f"e{rank}" for rank in range(size)]
        return [processes.start(function, store=store.address, members=members, me=me, **arguments) for me in members]

    return start
