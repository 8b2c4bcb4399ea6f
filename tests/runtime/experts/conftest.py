"""What the tests of experts share."""

import pytest

from elasticfsm.runtime.store import StoreServer


@pytest.fixture
def store():
    server = StoreServer()
    yield server
    server.close()
