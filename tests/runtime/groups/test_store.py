"""The store listens where it was told to, and nobody hangs on it."""

import threading
from pathlib import Path

import pytest

from elasticfsm.errors import DeadlineExpired, GroupCut, GroupError
from elasticfsm.runtime.cut import address_of
from elasticfsm.runtime.groups import Groups
from elasticfsm.runtime.store import StoreClient, StoreServer


def serve(link):
    server = StoreServer()
    link.say(server.address)
    link.hear(60)


def _listening():
    """(local address, port) of every listening socket of this process, from the kernel's own tables."""
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            inodes.add(str(entry.readlink()))
        except OSError:
            continue
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path("/proc/net", table).read_text().splitlines()[1:]:
            columns = line.split()
            if columns[3] == "0A" and f"socket:[{columns[9]}]" in inodes:
                host, port = columns[1].split(":")
                found.add((host, int(port, 16)))
    return found


def test_store_and_groups_listen_on_loopback_only():
    before = _listening()
    server = StoreServer()
    groups = Groups(server.address)
    groups.plan("op", 1, ["e0"], "e0")
    groups.create("active")
    new = _listening() - before
    assert len(new) == 5  # the store and an endpoint per group
    assert {host for host, _ in new} == {"0100007F"}
    assert address_of(server.address)[1] in {port for _, port in new}
    assert groups.close_all() == []
    server.close()
    assert not _listening() & new


def test_a_value_set_by_one_client_is_seen_by_a_waiting_other(store):
    waiting, setting = StoreClient(store.address), StoreClient(store.address)
    found = []
    thread = threading.Thread(target=lambda: found.append(waiting.wait("op/key", 10)))
    thread.start()
    setting.set("op/key", "value")
    thread.join(10)
    assert found == ["value"]


def test_arrival_returns_what_each_member_brought(store):
    here, there = StoreClient(store.address), StoreClient(store.address)
    there.set("op/arrived/b", "from b")
    assert here.arrive("op/arrived", ["a", "b"], "a", "from a", within=5) == {"a": "from a", "b": "from b"}


def test_a_wait_ends_at_its_deadline_or_when_cancelled(store):
    client, event = StoreClient(store.address), threading.Event()
    with pytest.raises(DeadlineExpired, match="op/never"):
        client.wait("op/never", 0.05)
    event.set()
    with pytest.raises(GroupCut):
        client.wait("op/never", 10, event)
    with pytest.raises(GroupCut):
        client.wait("op/never", 10, lambda: True)


def test_the_keys_of_one_operation_are_deleted_and_no_others(store):
    client = StoreClient(store.address)
    for key in ("op1/a", "op1/b/c", "op10/a"):
        client.set(key, "x")
    assert client.delete("op1") == 2
    assert not client.has("op1/a")
    assert client.has("op10/a")


def test_a_dead_store_is_an_error_for_old_and_new_clients(processes):
    server = processes.start(serve)
    client = StoreClient(server.hear(), timeout=2)
    client.set("op/key", "x")
    server.kill()
    with pytest.raises(GroupError, match="failed at"):
        client.wait("op/never", 10)
    with pytest.raises(GroupError, match="no store at"):
        StoreClient(client.address)


def test_a_stopped_store_is_an_error_after_the_timeout_of_a_request(processes):
    server = processes.start(serve)
    client = StoreClient(server.hear(), timeout=0.3)
    client.set("op/key", "x")
    server.stop()
    with pytest.raises(GroupError, match="failed at"):
        client.wait("op/never", 10)


def test_connecting_to_a_stopped_store_ends_after_the_timeout_and_hinders_no_other_client(processes, store):
    server = processes.start(serve)
    address = server.hear()
    server.stop()
    with pytest.raises(GroupError, match="no store at"):
        StoreClient(address, timeout=0.5)
    assert not StoreClient(store.address).has("op/key")


def test_a_cut_frees_a_thread_that_is_blocked_in_a_request_to_a_stopped_store(processes):
    server = processes.start(serve)
    client = StoreClient(server.hear(), timeout=60)
    client.set("op/key", "x")
    server.stop()
    errors = []

    def ask():
        with pytest.raises(GroupError) as error:
            client.has("op/key")
        errors.append(error.value)

    thread = threading.Thread(target=ask)
    thread.start()
    while thread.is_alive():  # the request may not have begun at the first cut
        client.cut()
        thread.join(0.05)
    assert len(errors) == 1
