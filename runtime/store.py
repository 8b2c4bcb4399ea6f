"""The rendezvous store: one TCPStore per coordinator, needed while groups are created and never by serving."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from torch._C._distributed_c10d import TCPStore

from elasticfsm.errors import DeadlineExpired, GroupError

from .cut import Address, Wires, address_of, connections, text_of
from .deadline import Cancelled, Deadline

T = TypeVar("T")

_POLL = 0.02  # seconds between two looks at a key; TCPStore's own timed wait writes a warning for every slice
_connecting = threading.Lock()  # a client's socket is found by comparing before and after, so one at a time


class StoreServer:
    """The store itself, owned by the coordinator process and bound to `host` only.

    TCPStore by itself listens on every interface; handing it a bound socket is the way to prevent that.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listener.bind((host, 0))
        listener.listen(128)
        address = listener.getsockname()
        self.address = text_of(address)
        self._store: TCPStore | None = TCPStore(
            host,
            address[1],
            is_master=True,
            wait_for_workers=False,
            timeout=timedelta(seconds=10),
            master_listen_fd=listener.detach(),
        )

    def answers(self, within: float = 2.0) -> bool:
        """Whether a client can still use it; blocks for so many seconds at most."""
        try:
            client = StoreClient(self.address, within)
            client.has("alive")
        except GroupError:
            return False
        client.close()
        return True

    def close(self) -> None:
        """Stop listening and forget every key; idempotent. Clients get GroupError from then on."""
        self._store = None


class StoreClient:
    """One connection to the store, for one thread (a blocked call blocks every other call on the same client).

    `timeout` seconds bound each single request, also when the server is stopped instead of dead.
    Every method raises GroupError when the server is gone.
    """

    def __init__(self, address: str, timeout: float = 10.0) -> None:
        self.address = address
        self.timeout = timeout
        server = address_of(address)
        with _connecting:
            before = _locals_to(server)
            self._store: TCPStore | None = _connect(server, timeout, before)
            fresh = _locals_to(server) - before
        if len(fresh) != 1:
            raise GroupError(f"{len(fresh)} new connections to {address} where 1 was expected: use StoreClient for all")
        own = fresh.pop()
        self._wires = Wires.of_client(own, server)
        _bound_requests(own, server, timeout)

    @property
    def raw(self) -> TCPStore:
        """The TCPStore, to build process groups on."""
        if self._store is None:
            raise GroupError(f"store client of {self.address} is closed")
        return self._store

    def clone(self) -> StoreClient:
        """Another connection to the same store, for another thread."""
        return StoreClient(self.address, self.timeout)

    def set(self, key: str, value: str) -> None:
        """Set one key; on a dead store the first call may pass unnoticed, the next request raises."""
        self._request(f"set {key}", lambda store: store.set(key, value))

    def has(self, *keys: str) -> bool:
        """Whether all keys exist; does not wait."""
        return self._request(f"check {keys[0]}", lambda store: store.check(list(keys)))

    def wait(self, key: str, within: float, cancelled: Cancelled = None) -> str:
        """Wait for a key and return its value; DeadlineExpired or GroupCut (cancelled) otherwise."""
        self._wait([key], Deadline(within, f"store key {key}", cancelled))
        return self._get(key)

    def arrive(
        self, name: str, members: Sequence[str], me: str, value: str, *, within: float, cancelled: Cancelled = None
    ) -> dict[str, str]:
        """Say that `me` is here and wait until all `members` are; returns what each of them brought.

        This is how a rendezvous is entered: only when everybody has arrived, so that the collective itself is short.
        """
        self.set(f"{name}/{me}", value)
        keys = [f"{name}/{member}" for member in members]
        try:
            self._wait(keys, Deadline(within, f"arrival at {name}", cancelled))
        except DeadlineExpired as expired:
            absent = ", ".join(member for member, key in zip(members, keys, strict=True) if not self.has(key))
            raise DeadlineExpired(f"{expired}; absent: {absent}") from None
        return {member: self._get(key) for member, key in zip(members, keys, strict=True)}

    def delete(self, operation: str) -> int:
        """Delete every key of an operation; returns how many there were."""
        keys = [key for key in self._request("list keys", lambda store: store.list_keys()) if _under(key, operation)]
        for key in keys:
            self._request(f"delete {key}", lambda store, key=key: store.delete_key(key))  # type: ignore[misc]
        return len(keys)

    def cut(self) -> None:
        """Free a thread that is blocked in this client, from any other thread."""
        self._wires.cut()

    def close(self) -> None:
        """Close the connection; idempotent."""
        self._store = None

    def _get(self, key: str) -> str:
        return self._request(f"get {key}", lambda store: store.get(key)).decode()

    def _wait(self, keys: list[str], deadline: Deadline) -> None:
        while not self.has(*keys):
            time.sleep(deadline.slice(_POLL))

    def _request(self, what: str, call: Callable[[TCPStore], T]) -> T:
        try:
            return call(self.raw)
        except RuntimeError as error:
            raise GroupError(f"store {self.address} failed at {what}: {_first_line(error)}") from None


def _under(key: str, operation: str) -> bool:
    return key.lstrip("/").startswith(operation + "/")


def _connect(server: Address, timeout: float, others: set[Address]) -> TCPStore:
    # TCPStore retries a refused connection for twice its timeout, so ask first whether anybody listens; and it waits
    # without end for the greeting of a server that is stopped, so cut it then.
    fresh = Wires(lambda local, remote: remote == server and local not in others, 1)
    over = threading.Event()
    threading.Thread(target=_cut_late, args=(fresh, over, timeout), name="store watchdog", daemon=True).start()
    try:
        socket.create_connection(server, timeout).close()
        return TCPStore(*server, is_master=False, wait_for_workers=False, timeout=timedelta(seconds=timeout))
    except (OSError, RuntimeError) as error:
        raise GroupError(f"no store at {text_of(server)}: {_first_line(error)}") from None
    finally:
        over.set()


def _cut_late(wires: Wires, over: threading.Event, timeout: float) -> None:
    if over.wait(timeout):
        return
    while not over.wait(_POLL):  # again and again: a cut connection is tried anew
        wires.cut()


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _locals_to(server: Address) -> set[Address]:
    return {local for _, local, remote in connections() if remote == server}


def _bound_requests(own: Address, server: Address, timeout: float) -> None:
    # TCPStore bounds waits for keys but not the answer itself: a stopped server would hold a request for ever.
    limit = struct.pack("ll", int(timeout), int(timeout % 1 * 1e6))
    for each, local, remote in connections():
        if (local, remote) == (own, server):
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
