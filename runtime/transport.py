"""Sockets: one ROUTER in the coordinator process, one DEALER in each engine, and a wake socket per engine.

A socket belongs to one thread. Other threads put messages into an `Outbox`, which wakes that thread through an eventfd.
Between hub and engine every message but heartbeats and greetings arrives once and in order (`link`).
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import queue
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

import zmq

from elasticfsm.errors import RequestRefused

from . import wire
from .link import GIVE_UP, Link, new_end, unpacked

Tap = Callable[[bytes], list[float]]  # seconds after which each copy of a message goes out; [] loses it

GONE = 2 * GIVE_UP  # seconds of silence after which the hub keeps nothing of an engine; it was killed long before
_UNIX_PATH = 100  # bytes; the kernel takes 107


class SocketDirectory:
    """A directory that only this user may enter, for ipc sockets; removed on `close`."""

    def __init__(self) -> None:
        base = tempfile.gettempdir()
        if len(base) > _UNIX_PATH // 2:
            base = "/tmp"
        self.path = Path(tempfile.mkdtemp(prefix="elasticfsm-", dir=base))  # mkdtemp makes it 0700

    def address(self, name: str) -> str:
        """The ipc address of a name in it."""
        return check_address(f"ipc://{self.path / name}.sock")

    def close(self) -> None:
        """Remove it with everything in it; idempotent."""
        shutil.rmtree(self.path, ignore_errors=True)


def remove_socket(address: str) -> None:
    """Remove what an ended engine left of an ipc address; nothing for any other address."""
    if address.startswith("ipc://"):
        Path(address.removeprefix("ipc://")).unlink(missing_ok=True)


def wake_address(hub: str, engine: str) -> str:
    """Where peers wake an engine that joined at `hub`: beside the coordinator's socket, or a free port of its host."""
    parts = urlsplit(check_address(hub))
    if parts.scheme == "ipc":
        return f"{hub.rpartition('/')[0]}/{engine}.sock"
    return f"tcp://{parts.hostname}:*"


def check_address(address: str) -> str:
    """Return the address, or raise RequestRefused when it is malformed, too long, or not on this machine."""
    parts = urlsplit(address)
    if parts.scheme == "ipc":
        length = len(address.removeprefix("ipc://"))
        if 0 < length <= _UNIX_PATH:
            return address
        raise RequestRefused(f"{address}: a socket path has 1 to {_UNIX_PATH} bytes, this one {length}; choose another")
    if parts.scheme != "tcp" or not parts.hostname:
        raise RequestRefused(f"{address!r} is no address; expected ipc:///path/name.sock or tcp://127.0.0.1:port")
    if not _loopback(parts.hostname):
        raise RequestRefused(
            f"{address} is beyond this machine, and this channel is not authenticated; use tcp://127.0.0.1:port or ipc://"
        )
    return address


def _loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Outbox:
    """Messages that any thread leaves for the thread that owns the sockets."""

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._queue: queue.SimpleQueue[tuple[str, bytes, bool]] = queue.SimpleQueue()
        self._open = True

    def put(self, target: str, message: wire.Mail) -> None:
        """Leave a message; never blocks, and is silent after `close`."""
        self._queue.put((target, wire.encode(message), not isinstance(message, wire.LOSSY)))
        self.ring()

    def ring(self) -> None:
        """Wake the owner."""
        if self._open:
            with contextlib.suppress(OSError):
                os.eventfd_write(self.descriptor, 1)

    def take(self) -> Iterator[tuple[str, bytes, bool]]:
        """What was left, oldest first, and whether it must arrive; for the owner."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.eventfd_read(self.descriptor)
        while True:
            try:
                yield self._queue.get_nowait()
            except queue.Empty:
                return

    def close(self) -> None:
        """Drop the descriptor; idempotent."""
        if self._open:
            self._open = False
            os.close(self.descriptor)


class Endpoint:
    """The sockets of one thread, and what it dropped. Only `send` may be called from other threads."""

    def __init__(self) -> None:
        self.dropped: dict[str, int] = {}
        self.tap: Tap | None = None  # faults of the wire, for tests
        self.end = new_end()
        self._late: list[tuple[float, zmq.Socket[bytes], list[bytes]]] = []
        self._context = zmq.Context()
        self._context.set(zmq.MAX_SOCKETS, 4096)
        self._sockets: list[zmq.Socket[bytes]] = []
        self._poller = zmq.Poller()
        self._outbox = Outbox()
        self._poller.register(self._outbox.descriptor, zmq.POLLIN)

    def _open(self, kind: int) -> zmq.Socket[bytes]:
        socket: zmq.Socket[bytes] = self._context.socket(kind)
        socket.set(zmq.LINGER, 200)
        socket.set(zmq.MAXMSGSIZE, wire.LIMIT)
        socket.set(zmq.SNDHWM, 100_000)
        socket.set(zmq.RCVHWM, 100_000)
        self._sockets.append(socket)
        return socket

    def _bind(self, socket: zmq.Socket[bytes], address: str) -> str:
        try:
            socket.bind(check_address(address))
        except zmq.ZMQError as error:
            raise RequestRefused(f"cannot listen on {address}: {error}; choose another address") from error
        bound: bytes = socket.getsockopt(zmq.LAST_ENDPOINT)  # type: ignore[assignment]
        return bound.rstrip(b"\0").decode()

    def drop(self, reason: str) -> None:
        """Count a message that was not delivered."""
        self.dropped[reason] = self.dropped.get(reason, 0) + 1

    def ring(self) -> None:
        """Make a `poll` in the owner's thread return."""
        self._outbox.ring()

    def _decode(self, data: bytes) -> list[wire.Mail]:
        try:
            return [wire.decode(data)]
        except wire.WireError:
            self.drop("malformed")
            return []

    def _transmit(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        """Hand frames to a socket; the last one is the message. What a tap delays goes out at a later poll."""
        for delay in self.tap(frames[-1]) if self.tap is not None and frames[-1] else (0.0,):
            if delay:
                self._late.append((time.monotonic() + delay, socket, frames))
            else:
                self._put(socket, frames)

    def _transmit_late(self) -> None:
        now = time.monotonic()
        ready, self._late = (
            [each for each in self._late if each[0] <= now],
            [each for each in self._late if each[0] > now],
        )
        for _, socket, frames in ready:
            if socket in self._sockets:
                self._put(socket, frames)

    def _put(self, socket: zmq.Socket[bytes], frames: list[bytes]) -> None:
        try:
            socket.send_multipart(frames, zmq.NOBLOCK)
        except zmq.ZMQError:
            self.drop("unreachable")

    def _ready(self, seconds: float) -> set[object]:
        return {socket for socket, _ in self._poller.poll(int(1000 * seconds))}

    def close(self) -> None:
        """Close all sockets, giving what was sent 0.2 s to go out; owner's thread only, idempotent."""
        for socket in self._sockets:
            socket.close()
        self._sockets.clear()
        self._outbox.close()
        self._context.term()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Hub(Endpoint):
    """The coordinator's side: a ROUTER to which every engine connects under its engine id."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._links: dict[str, Link] = {}
        self._router = self._open(zmq.ROUTER)
        self._router.set(zmq.ROUTER_MANDATORY, 1)
        self.address = self._bind(self._router, address)
        self._poller.register(self._router, zmq.POLLIN)

    def send(self, engine: str, message: wire.Mail) -> None:
        """Send to an engine, from any thread; dropped and counted when it is not connected."""
        self._outbox.put(engine, message)

    def poll(self, seconds: float) -> list[tuple[str, wire.Mail]]:
        """Send what was left, then return what came within `seconds`: (engine id, message). Owner's thread only."""
        ready = self._ready(seconds)
        self.flush()
        found: list[tuple[str, wire.Mail]] = []
        while self._router in ready:
            try:
                frames = self._router.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                break
            found += self._received(frames)
        for engine, link in self._links.items():
            if link.owes:
                self._transmit(self._router, [engine.encode(), link.receipt(), b""])
        return found

    def flush(self) -> None:
        """Send what was left, and again what was not acknowledged. Owner's thread only."""
        now = time.monotonic()
        for engine, data, tracked in self._outbox.take():
            link = self._links.get(engine)
            if link is None:
                self.drop("unreachable")
            else:
                self._transmit(self._router, [engine.encode(), link.stamp(data, tracked, now), data])
        for engine, link in list(self._links.items()):
            for envelope, data in link.due(now):
                self._transmit(self._router, [engine.encode(), envelope, data])
            if now - link.met > GONE:
                self._forget(engine)
        self._transmit_late()

    def _forget(self, engine: str) -> None:
        for reason, count in self._links.pop(engine).dropped.items():
            self.dropped[f"link: {reason}"] = self.dropped.get(f"link: {reason}", 0) + count

    def _received(self, frames: list[bytes]) -> list[tuple[str, wire.Mail]]:
        envelope = unpacked(frames[1]) if len(frames) == 3 else None
        if envelope is None:
            self.drop("malformed")
            return []
        engine, data = frames[0].decode(errors="replace"), frames[2]
        link = self._links.get(engine)
        if link is None:
            link = self._links[engine] = Link(self.end)
        if not link.accept(envelope, time.monotonic()) or not data:
            return []
        return [(engine, message) for message in self._decode(data) if self._claimed(engine, message)]

    def _claimed(self, engine: str, message: wire.Mail) -> bool:
        if message.sender == engine:
            return True
        self.drop("forged sender")
        return False


class Mailbox(Endpoint):
    """An engine's side: a DEALER to the hub, and wakes from and to its peers without a detour."""

    def __init__(self, hub: str, wake: str, engine: str) -> None:
        super().__init__()
        self._link = Link(self.end)
        self._dealer = self._open(zmq.DEALER)
        self._dealer.set(zmq.ROUTING_ID, engine.encode())
        self._dealer.connect(check_address(hub))
        self._wakes = self._open(zmq.PULL)
        self.address = self._bind(self._wakes, wake)
        self._peers: dict[str, zmq.Socket[bytes]] = {}
        self._kept: frozenset[str] | None = None
        for socket in (self._dealer, self._wakes):
            self._poller.register(socket, zmq.POLLIN)

    def send(self, message: wire.Mail) -> None:
        """Send to the hub, from any thread."""
        self._outbox.put("", message)

    def wake(self, address: str, message: wire.Wake) -> None:
        """Send to a peer's wake address, from any thread; it may be lost."""
        self._outbox.put(address, message)

    def poll(self, seconds: float) -> list[wire.Mail]:
        """Send what was left, then return what came within `seconds`. Owner's thread only."""
        ready = self._ready(seconds)
        self.flush()
        found: list[wire.Mail] = []
        for socket in (self._dealer, self._wakes):
            while socket in ready:
                try:
                    frames = socket.recv_multipart(zmq.NOBLOCK)
                except zmq.Again:
                    break
                found += self._received(frames) if socket is self._dealer else self._decode(frames[-1])
        if self._link.owes:
            self._transmit(self._dealer, [self._link.receipt(), b""])
        return found

    def flush(self) -> None:
        """Send what was left, and again what was not acknowledged. Owner's thread only."""
        now = time.monotonic()
        for address, data, tracked in self._outbox.take():
            if address:
                self._transmit(self._peer(address), [data])
            else:
                self._transmit(self._dealer, [self._link.stamp(data, tracked, now), data])
        for envelope, data in self._link.due(now):
            self._transmit(self._dealer, [envelope, data])
        self._transmit_late()
        kept, self._kept = self._kept, None
        if kept is not None:
            self._forget(kept)

    def close(self) -> None:
        """See Endpoint.close; the address where peers woke this engine is free again."""
        super().close()
        remove_socket(self.address)

    def settle(self, within: float) -> None:
        """Before the end: send until everything is acknowledged, `within` seconds at most. Owner's thread only."""
        end = time.monotonic() + within
        self.flush()
        while self._link.waiting and (left := end - time.monotonic()) > 0:
            self.poll(min(left, 0.05))

    def keep(self, addresses: Collection[str]) -> None:
        """Close the sockets to peers at any other wake address, from any thread: at the next `poll`."""
        self._kept = frozenset(addresses)
        self.ring()

    def _forget(self, kept: frozenset[str]) -> None:
        for address in set(self._peers) - kept:
            socket = self._peers.pop(address)
            self._sockets.remove(socket)
            socket.close()

    def _received(self, frames: list[bytes]) -> list[wire.Mail]:
        envelope = unpacked(frames[0]) if len(frames) == 2 else None
        if envelope is None:
            self.drop("malformed")
            return []
        return self._decode(frames[1]) if self._link.accept(envelope, time.monotonic()) and frames[1] else []

    def _peer(self, address: str) -> zmq.Socket[bytes]:
        if address not in self._peers:
            self._peers[address] = self._open(zmq.PUSH)
            self._peers[address].connect(check_address(address))
        return self._peers[address]
