"""Stateless gloo groups over a given store, each with an endpoint of its own so that its sockets can be told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from ipaddress import ip_address

from torch._C._distributed_c10d import HashStore, PrefixStore, ProcessGroupGloo, Store

from elasticfsm.errors import GroupError

from .cut import Address, Wires, address_of, listeners, text_of

_PUBLISHED = "0/0"  # the key under which rank 0 of a group tells its address


class GlooEndpoint:
    """One listener on `host`, for one group; `address` is what peers must know before `connect`."""

    def __init__(self, host: str) -> None:
        self._device = ProcessGroupGloo.create_device(hostname=host)
        self._own = _listener_of(self._device)
        self.address = text_of(self._own)

    def wires(self, addresses: Mapping[str, str] | Sequence[str]) -> Wires:
        """The connections of the group whose members have these endpoint addresses."""
        texts = addresses.values() if isinstance(addresses, Mapping) else addresses
        return Wires.of_group(self._own, frozenset(map(address_of, texts)) - {self._own})

    def connect(
        self, store: Store, prefix: str, rank: int, size: int, *, within: float, step_within: float
    ) -> ProcessGroupGloo:
        """Create the group; blocks until all members have, at most `within` seconds.

        Operations may then last `step_within` seconds: the group's own timeout, which no cut or wait can shorten, is
        only the last resort behind the deadlines of the callers.
        """
        options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
        options._devices = [self._device]
        options._threads = 1  # operations of one group run in the order in which they were posted
        options._timeout = timedelta(seconds=within)
        group = ProcessGroupGloo(PrefixStore(prefix, store), rank, size, options)
        group.set_timeout(timedelta(seconds=step_within))
        return group


def _listener_of(device: ProcessGroupGloo.Device) -> Address:
    """The address on which a device listens, which torch does not tell.

    A group of one over a throw-away store publishes it, inside a structure of gloo's; so it is that listener of this
    process whose address occurs there. Exact whatever sockets other threads open meanwhile.
    """
    options = ProcessGroupGloo._Options()  # type: ignore[attr-defined]
    options._devices = [device]
    options._threads = 1
    options._timeout = timedelta(seconds=5)
    store = HashStore()
    ProcessGroupGloo(store, 0, 1, options)
    published = store.get(_PUBLISHED)
    found = [address for address in listeners() if _packed(address) in published]
    if len(found) != 1:
        raise GroupError(f"cannot find gloo's listener: {len(found)} of this process's listeners match, expected 1")
    return found[0]


def _packed(address: Address) -> bytes:
    """Port and host as they stand in a sockaddr_in or sockaddr_in6 (with flow label 0)."""
    host = ip_address(address[0])
    return address[1].to_bytes(2, "big") + bytes(0 if host.version == 4 else 4) + host.packed
