"""Sockets: loopback only, in a directory of this user, and nothing but messages of the right sender gets through."""

import contextlib
import stat
import time

import pytest
import zmq

from elasticfsm.errors import RequestRefused
from elasticfsm.runtime import wire
from elasticfsm.runtime.link import Envelope
from elasticfsm.runtime.transport import Hub, Mailbox, SocketDirectory, check_address


@pytest.fixture
def directory():
    made = SocketDirectory()
    yield made
    made.close()


def until(ask, seconds=5.0):
    """What `ask` returns as soon as it is not empty."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = ask()
        if found:
            return found
    raise AssertionError("nothing came")


def test_the_directory_of_the_sockets_is_private_and_disappears(directory):
    assert stat.S_IMODE(directory.path.stat().st_mode) == 0o700
    directory.close()
    assert not directory.path.exists()


@pytest.mark.parametrize("scheme", ["ipc", "tcp"])
def test_messages_pass_both_ways_and_wakes_pass_between_engines(directory, scheme):
    def address(name):
        return directory.address(name) if scheme == "ipc" else "tcp://127.0.0.1:*"

    with (
        Hub(address("hub")) as hub,
        Mailbox(hub.address, address("e0"), "e0") as first,
        Mailbox(hub.address, address("e1"), "e1") as second,
    ):
        first.send(wire.Booted(sender="e0"))
        first.poll(0)
        assert until(lambda: hub.poll(0.05)) == [("e0", wire.Booted(sender="e0"))]
        hub.send("e0", wire.Exit(sender="coordinator"))
        hub.poll(0)
        assert until(lambda: first.poll(0.05)) == [wire.Exit(sender="coordinator")]
        wake = wire.Wake(name="wake", machine="a", receiver="b", wave=1, sender="e0")
        first.wake(second.address, wake)
        first.poll(0)
        assert until(lambda: second.poll(0.05)) == [wake]


def test_sockets_to_peers_that_are_not_known_any_more_are_closed(directory):
    """Ids are never used again: a socket for each engine that ever was would be a descriptor for each."""
    wake = wire.Wake(name="wake", machine="a", receiver="b", wave=1, sender="e0")
    with contextlib.ExitStack() as opened:
        hub = opened.enter_context(Hub(directory.address("hub")))
        first, *others = (
            opened.enter_context(Mailbox(hub.address, directory.address(name), name))
            for name in ("e0", "e1", "e2", "e3")
        )
        for other in others:
            first.wake(other.address, wake)
        until(lambda: first.poll(0) or len(first._peers) == 3)
        first.keep([others[1].address])
        first.poll(0)
        assert list(first._peers) == [others[1].address]
        first.wake(others[1].address, wake)
        first.poll(0)
        assert until(lambda: others[1].poll(0.05))[0] == wake


def test_garbage_and_forged_senders_are_dropped_and_counted(directory):
    with Hub(directory.address("hub")) as hub, zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
        stranger.set(zmq.ROUTING_ID, b"e7")
        stranger.connect(hub.address)
        first = Envelope(7, 0, 1, 0)
        stranger.send(b"garbage")
        stranger.send_multipart([first.packed(), b"garbage"])
        stranger.send_multipart([first._replace(number=2).packed(), wire.encode(wire.Booted(sender="e0"))])
        stranger.send_multipart([first._replace(number=3).packed(), wire.encode(wire.Booted(sender="e7"))])
        assert until(lambda: hub.poll(0.05)) == [("e7", wire.Booted(sender="e7"))]
        assert hub.dropped == {"malformed": 2, "forged sender": 1}


def test_a_message_to_an_engine_that_is_not_there_is_counted(directory):
    with Hub(directory.address("hub")) as hub:
        hub.send("nobody", wire.Exit())
        until(lambda: hub.poll(0.01) or hub.dropped)
        assert hub.dropped == {"unreachable": 1}


@pytest.mark.parametrize("address", ["tcp://10.1.2.3:80", "tcp://0.0.0.0:80", "tcp://[::]:80", "tcp://example.org:80"])
def test_an_address_beyond_this_machine_is_refused(address):
    with pytest.raises(RequestRefused, match="not authenticated"):
        check_address(address)


@pytest.mark.parametrize("address", ["", "hub", "http://127.0.0.1:80", "ipc://", "ipc:///" + "x" * 200])
def test_a_malformed_address_is_refused(address):
    with pytest.raises(RequestRefused):
        check_address(address)


def test_a_taken_address_is_refused(directory):
    with Hub("tcp://127.0.0.1:*") as hub, pytest.raises(RequestRefused, match="cannot listen"):
        Hub(hub.address)
