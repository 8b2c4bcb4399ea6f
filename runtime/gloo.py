"""Stateless gloo groups over a given store, each with an endpoint of its own so that its sockets can be told apart."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from datetime import timedelta

from torch._C._distributed_c10d import PrefixStore, ProcessGroupGloo, Store

from elasticfsm.errors import GroupError

from .cut import Address, Wires, address_of, listeners, text_of

_TRIES = 8
_creating = threading.Lock()  # an endpoint's port is found by comparing before and after, so one at a time


class GlooEndpoint:
    """One listener on `host`, for one group; `address` is what peers must know before `connect`."""

    def __init__(self, host: str) -> None:
        self._device, own = _listen(host)
        self._own = own
        self.address = text_of(own)

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


def _listen(host: str) -> tuple[ProcessGroupGloo.Device, Address]:
    """A new device and the address of its listener, which torch does not tell."""
    for _ in range(_TRIES):
        with _creating:
            before = listeners()
            device = ProcessGroupGloo.create_device(hostname=host)
            fresh = listeners() - before
        if len(fresh) == 1:  # gloo's is among them, so one means that it is gloo's
            return device, fresh.pop()[1]
    raise GroupError(f"cannot tell gloo's listener on {host} from others: new sockets appeared in {_TRIES} tries")
