"""A cut hits the connections it means and no others."""

import socket
import threading
import time
from contextlib import ExitStack

import torch

from elasticfsm.runtime.cut import Wires
from elasticfsm.runtime.groups import Groups


def _pair(stack):
    """A listener and a connection to it: (listener, dialled, accepted)."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    dialled = stack.enter_context(socket.create_connection(listener.getsockname()))
    accepted = stack.enter_context(listener.accept()[0])
    return listener, dialled, accepted


def _open(*pair):
    pair[0].sendall(b"x")
    return pair[1].recv(1) == b"x"


def test_only_connections_of_the_named_endpoints_are_cut_and_the_listener_stays():
    with ExitStack() as stack:
        listener, dialled, accepted = _pair(stack)
        _, *other = _pair(stack)
        assert Wires.of_group(listener.getsockname(), frozenset()).cut() == 1
        assert dialled.recv(1) == b""
        assert accepted.recv(1) == b""
        assert _open(*other)
        again = stack.enter_context(socket.create_connection(listener.getsockname()))
        assert _open(again, stack.enter_context(listener.accept()[0]))


def test_a_client_is_cut_by_both_its_ends_so_that_other_clients_of_the_same_server_stay():
    with ExitStack() as stack:
        listener, dialled, _ = _pair(stack)
        second = stack.enter_context(socket.create_connection(listener.getsockname()))
        accepted = stack.enter_context(listener.accept()[0])
        assert Wires.of_client(dialled.getsockname(), listener.getsockname()).cut() == 1
        assert _open(second, accepted)


def create_beside_other_sockets(link, store, members, me):
    """Create a generation while another thread opens and closes sockets, then cut: the others must stay whole."""
    stop, kept = threading.Event(), []
    with ExitStack() as stack:

        def open_sockets():
            while not stop.is_set():
                kept.append(_pair(stack)[1:])
                time.sleep(0.002)

        thread = threading.Thread(target=open_sockets)
        thread.start()
        groups = Groups(store)
        groups.plan("op", 1, members, me)
        groups.create("active")
        stop.set()
        thread.join()
        generation = groups.need("active")
        generation.world.barrier()
        counts = [group._wires.count() for group in generation.groups]
        generation.world.barrier()  # nobody cuts before all have counted
        generation.dp.cut("test")
        value = torch.ones(1)
        generation.ep.all_reduce(value)
        groups.close_all()
        return {"counts": counts, "whole": all(_open(*pair) for pair in kept), "others": len(kept), "ep": value.item()}


def test_sockets_of_other_threads_are_never_taken_for_the_groups(engines):
    for engine in engines(create_beside_other_sockets, 3):
        result = engine.result()
        assert result["counts"] == [2, 2, 2, 2]
        assert result["whole"]
        assert result["others"] > 0
        assert result["ep"] == 3
