"""Cutting TCP connections: `shutdown` on the sockets of one group or store client frees every thread blocked in it.

Which sockets are meant is decided by their *addresses*, looked up at the moment of the cut, never by remembered
descriptor numbers or by a difference of two listings: a descriptor may have been closed and given to somebody else, and
zmq or NIXL may open sockets while a group is created. A group's endpoint listens on a port of its own, so its
connections are exactly those whose local end is that port or whose remote end is the port of a peer's endpoint.
Assumed: Linux (/proc), and that nobody but the group connects to these ports. Listeners are never touched: they have no
peer, and gloo terminates the process when its listener is shut down.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

Address = tuple[str, int]

_DESCRIPTORS = Path("/proc/self/fd")
_MAPPED = "::ffff:"  # how an IPv6 socket writes an IPv4 address
_ESTABLISHED = 1  # TCP_ESTABLISHED of linux/tcp_states.h


def address_of(text: str) -> Address:
    """Split "host:port" into its two parts; the inverse of `text_of`."""
    host, _, port = text.rpartition(":")
    return host, int(port)


def text_of(address: Address) -> str:
    """Write an address as "host:port"."""
    return f"{address[0]}:{address[1]}"


def sockets() -> Iterator[socket.socket]:
    """Yield a duplicate of every TCP socket of this process; it is closed when the next one is asked for.

    A duplicate stays the same socket even if its owner closes the descriptor, so what is decided about it holds.
    """
    for entry in _DESCRIPTORS.iterdir():
        with suppress(OSError):  # closed meanwhile, or not a socket
            if not os.readlink(entry).startswith("socket:"):  # noqa: PTH115 (a Path of it costs more)
                continue
            with _duplicate(int(entry.name)) as each:
                if each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_STREAM:
                    yield each


def _duplicate(descriptor: int) -> socket.socket:
    copy = os.dup(descriptor)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


def _plain(address: tuple[str, int, int, int] | Address) -> Address:
    return address[0].removeprefix(_MAPPED), address[1]


def connections() -> Iterator[tuple[socket.socket, Address, Address]]:
    """Yield (duplicate, local address, remote address) of every connected TCP socket of this process."""
    for each in sockets():
        with suppress(OSError):  # a listener, or not connected (any more)
            yield each, _plain(each.getsockname()), _plain(each.getpeername())


def listeners() -> set[Address]:
    """The address of every listening TCP socket of this process."""
    return {
        _plain(each.getsockname()) for each in sockets() if each.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    }


def _established(each: socket.socket) -> bool:
    return each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _ESTABLISHED


class Wires:
    """The connections whose (local, remote) addresses `mine` accepts; `expected` many while all peers live."""

    def __init__(self, mine: Callable[[Address, Address], bool], expected: int) -> None:
        self._mine = mine
        self.expected = expected

    @classmethod
    def of_group(cls, own: Address, peers: frozenset[Address]) -> Wires:
        """Connections of a group whose endpoint listens on `own` and whose peers listen on `peers`."""
        return cls(lambda local, remote: local == own or remote in peers, len(peers))

    @classmethod
    def of_client(cls, own: Address, server: Address) -> Wires:
        """The one connection between `own` and `server`."""
        return cls(lambda local, remote: local == own and remote == server, 1)

    def count(self) -> int:
        """How many are established now: neither end has been closed."""
        return sum(self._mine(local, remote) and _established(each) for each, local, remote in connections())

    def cut(self) -> int:
        """Shut all of them down, from any thread, without blocking; returns how many there were."""
        found = 0
        for each, local, remote in connections():
            if self._mine(local, remote):
                found += 1
                with suppress(OSError):  # the peer was faster
                    each.shutdown(socket.SHUT_RDWR)
        return found
