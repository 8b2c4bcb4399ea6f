"""KB16: a retry reads what the attempt before left in the store. Keys begin with the operation id."""

import pytest

from elasticfsm.runtime.groups import Groups
from elasticfsm.runtime.store import StoreClient, StoreServer

pytestmark = pytest.mark.slow


def test_a_retry_after_an_attempt_that_broke_half_way_completes_on_the_same_store(shared):
    shared.survives("scale_up/new/building/exception", "aborted")
    store = shared.rig.deployment._store.address
    shared.rescale(3)
    assert shared.rig.deployment._store.address == store


def test_a_generation_does_not_see_the_arrivals_of_another_operation_with_the_same_number():
    server = StoreServer()
    client = StoreClient(server.address)
    client.set("op-old/7/arrived/a", '["127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1", "127.0.0.1:1"]')
    groups = Groups(server.address)
    groups.plan("op-new", 7, ("a",), "a")
    groups.create("standby")
    assert groups.need("standby").operation == "op-new"
    assert groups.close_all() == []
    client.close()
    server.close()
