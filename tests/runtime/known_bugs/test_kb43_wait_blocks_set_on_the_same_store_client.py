"""KB43: a wait in one thread blocks the `set` that another thread must do. Every thread has a client of its own."""

import threading

from elasticfsm.runtime.store import StoreClient, StoreServer


def test_while_one_thread_waits_for_a_key_another_one_sets_it():
    server = StoreServer()
    waiting = StoreClient(server.address)
    setting = waiting.clone()
    found = []
    thread = threading.Thread(target=lambda: found.append(waiting.wait("key", 10)))
    thread.start()
    setting.set("key", "value")
    thread.join(10)
    assert found == ["value"]
    waiting.close()
    setting.close()
    server.close()
