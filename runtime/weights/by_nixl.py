"""Weights read by NIXL: receiver-driven READs out of registered memory; the side that serves spends no time on it.

The ten rules kept here were measured, not guessed:
 1. an agent's name carries engine and epoch and is never reused (a restarted namesake is refused by its peers);
 2. a destination is quarantined from the post until DONE, and after an error until the peer is known quiet:
    released handles and removed peers go on writing (reads.py; experts are checked by sum before they are used);
 3. deregistering revokes nothing, so a source waits for its readers before it withdraws or rewrites (by a vote);
 4. NIXL waits for ever, so every wait has our deadline;
 5. a typed exception is terminal for that peer: its agent is removed and never talked to again, it comes back renewed;
 6. error mode `peer` always (`none` may hang);
 7. no progress thread of NIXL (it spins on a whole core): while peers may wire up to us, a thread of ours looks every
    few milliseconds; a connection is made and tried with one byte before it is needed;
 8. NIXL never reports an idle death, so liveness is the heartbeats' business;
 9. metadata travels over our own channel, and who has read is acknowledged there;
10. one lock around the agent, which is made for several threads (RW) besides.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch import Tensor

from elasticfsm.errors import TransferError

from ..deadline import Deadline
from .bindings import bindings, error_types
from .pump import Pump
from .reads import Landing, NixlReads, Read
from .regions import Region, Run, merged, run_of
from .transfer import Kind, Offer, Piece, Route, decode_offer

ERROR_MODE = "peer"
PROBE_BYTES = 8 << 20


@dataclass
class _Peer:
    agent: str
    regions: dict[str, Region]


class NixlTransfer:
    """Transfer by NIXL over UCX. One agent, one lock; calls from several threads take turns.

    Raises TransferError when NIXL cannot be loaded or its UCX backend cannot be made.
    """

    kind: Kind = "nixl"

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.moved: dict[str, int] = {"nixl": 0}
        self.rate = 0.0  # GB/s of the last probe out of a GPU; 0 while there was none
        self._api: Any = bindings()
        self.errors: tuple[type[Exception], ...] = error_types(self._api)
        self.lock = threading.RLock()
        self._incarnation = os.urandom(4).hex()  # a restarted engine keeps its id but not its agents' names
        self._epoch = 0
        self._tensors: dict[str, list[Tensor]] = {}
        self._regions: dict[str, Region] = {}
        self._registered: dict[str, Any] = {}
        self._peers: dict[str, _Peer] = {}
        self._runs: dict[int, list[Run]] = {}  # of every registration held
        self._quarantine: list[Read] = []
        self._described: set[str] = set()  # regions that peers may be connecting to
        self._dead: set[str] = set()  # agents that failed once; their engines come back under another name
        self.agent: Any = self._new_agent()
        self._pump = Pump(self.pump, f"nixl-pump-{engine}")

    def _new_agent(self) -> Any:
        api = self._api
        sync = api.nixl_thread_sync_t.NIXL_THREAD_SYNC_RW
        failures: tuple[type[Exception], ...] = (RuntimeError, *self.errors)
        config = api.nixl_agent_config(enable_prog_thread=False, backends=[], sync_mode=sync)
        try:
            agent = api.nixl_agent(f"{self.engine}@{self._incarnation}.{self._epoch}", config)
            agent.create_backend("UCX", {**agent.get_plugin_params("UCX"), "ucx_error_handling_mode": ERROR_MODE})
        except failures as error:
            raise TransferError(f"NIXL cannot make its UCX backend: {error!r}; use the transfer p2p") from error
        return agent

    @property
    def agent_name(self) -> str:
        """Name of the agent in use: engine, incarnation, epoch."""
        return str(self.agent.name)

    @property
    def registrations(self) -> int:
        """How many memory registrations are held, quarantined ones included."""
        return len(self._runs)

    @property
    def quarantined(self) -> int:
        """How many failed reads still keep their destinations."""
        return len(self._quarantine)

    # --- the side that is read from

    def offer(self, region: str, tensors: Sequence[Tensor]) -> None:
        """See Transfer.offer; registers the memory, neighbours as one."""
        with self.lock:
            self.withdraw(region)
            runs = merged([run_of(tensor) for tensor in tensors])
            self._registered[region] = self._register(runs)
            self._tensors[region] = list(tensors)
            self._regions[region] = Region(region, runs)

    def describe(self, regions: Sequence[str]) -> bytes:
        """See Transfer.describe; the metadata covers these regions and nothing else. From here on peers may connect."""
        self.check()
        with self.lock:
            runs = [run for name in regions for run in self._regions[name].runs]
            metadata = self.agent.get_partial_agent_metadata(self._descriptors(runs), inc_conn_info=True)
            named = [self._regions[name] for name in regions]
            self._described.update(regions)
            self._pump.start()
            return msgspec.msgpack.encode(Offer(self.engine, self.kind, self.agent_name, metadata, named))

    def rest(self, regions: Sequence[str]) -> None:
        """See Transfer.rest; the pump stops when nothing is left that peers may be connecting to."""
        with self.lock:
            self._described.difference_update(regions)
            if not self._described:
                self._pump.stop()

    def withdraw(self, region: str) -> None:
        """See Transfer.withdraw; deregisters."""
        with self.lock:
            self.rest([region])
            descriptors = self._registered.pop(region, None)
            if descriptors is not None:
                self._deregister(self.agent, descriptors)
            self._regions.pop(region, None)
            self._tensors.pop(region, None)

    def pump(self) -> None:
        """See Transfer.pump."""
        if not self.lock.acquire(blocking=False):
            return  # whoever holds the lock makes progress
        try:
            self.agent.get_new_notifs()
        finally:
            self.lock.release()

    def check(self) -> None:
        """Raise what ended the pump, if anything did."""
        self._pump.check()

    # --- the side that reads

    def connect(self, peer: str, offer: bytes, deadline: Deadline) -> None:
        """See Transfer.connect; adds the agent, wires up and reads one byte of its first region."""
        decoded = decode_offer(offer, peer, self.kind)
        if decoded.agent in self._dead:
            raise TransferError(f"agent {decoded.agent} of engine {peer} failed before; it has to renew its name first")
        with self.lock:
            known = self._peers.get(peer)
            offered = {region.name: region for region in decoded.regions}
            if known and known.agent != decoded.agent:
                self.forget(peer)
            elif known and offered.items() <= known.regions.items():
                return
            try:
                name = _text(self.agent.add_remote_agent(decoded.metadata))
                self.agent.make_connection(name)
            except self.errors as error:
                self.forget(peer)
                raise TransferError(f"the NIXL metadata of engine {peer} was refused: {error!r}") from error
            if name != decoded.agent:
                self.agent.remove_remote_agent(name)
                raise TransferError(f"engine {peer} announced agent {decoded.agent} but its metadata is of {name}")
            before = known.regions if known and known.agent == name else {}
            self._peers[peer] = _Peer(name, {**before, **offered})
        first = next((region for region in decoded.regions if region.nbytes), None)
        if first is not None:
            moved = self.moved["nixl"]
            self._probe(peer, first, deadline)
            self.moved["nixl"] = moved

    def _probe(self, peer: str, first: Region, deadline: Deadline) -> None:
        """Read a byte; from a GPU then some megabytes, whose rate is what the choice of a way for rows rests on."""
        run = first.runs[0]
        size = 1
        while True:
            probe = torch.zeros(size, dtype=torch.uint8, device=_device(run))
            begin = time.monotonic()
            self.exchange([Piece(peer, first.name, 0, probe)], [], deadline)
            if size > 1:
                self.rate = size / (time.monotonic() - begin) / 1e9
            if run.memory == "DRAM" or size > 1 or run.nbytes < 2:
                return
            size = min(PROBE_BYTES, run.nbytes)

    def prepare(self, exchanges: Sequence[Sequence[Piece]]) -> NixlReads:
        """See Transfer.prepare; registers all destinations at once and makes a handle for every read."""
        return NixlReads(self, exchanges)

    def exchange(
        self, incoming: Sequence[Piece], outgoing: Sequence[Piece], deadline: Deadline, route: Route | None = None
    ) -> None:
        """See Transfer.exchange."""
        prepared = self.prepare([incoming])
        try:
            prepared.run(0, outgoing, deadline, route)
        finally:
            prepared.release()

    def forget(self, peer: str) -> None:
        """See Transfer.forget; the next `connect` to it needs an agent name not seen before if it has failed."""
        with self.lock:
            known = self._peers.pop(peer, None)
            if known is not None:
                self.agent.remove_remote_agent(known.agent)

    def keep(self, peers: Collection[str]) -> None:
        """See Transfer.keep."""
        with self.lock:
            for peer in [peer for peer in self._peers if peer not in peers]:
                self.forget(peer)

    def settle(self, peer: str) -> None:
        """See Transfer.settle; frees the destinations of failed reads from that peer."""
        with self.lock:
            for read in [read for read in self._quarantine if read.peer == peer]:
                self._quarantine.remove(read)
                read.handles, read.posted = [], False
                read.landing.held -= 1
                self._free(read.landing)

    def renew(self) -> None:
        """See Transfer.renew; peers need a new description. The old agent lives as long as something is quarantined."""
        with self.lock:
            offered = dict(self._tensors)
            self.close()
            self._epoch += 1
            self.agent = self._new_agent()
            for region, tensors in offered.items():
                self.offer(region, tensors)

    def close(self) -> None:
        """See Transfer.close; what is quarantined stays allocated until it is settled or the process ends."""
        with self.lock:
            for peer in list(self._peers):
                self.forget(peer)
            for region in list(self._registered):
                self.withdraw(region)

    # --- for reads

    def agent_of(self, peer: str) -> str:
        """Return the agent of a connected peer."""
        known = self._peers.get(peer)
        if known is None:
            raise TransferError(f"engine {self.engine} is not connected to engine {peer} (any more); connect first")
        return known.agent

    def region_of(self, peer: str, name: str) -> Region:
        """Return a region that a connected peer offers."""
        self.agent_of(peer)
        regions = self._peers[peer].regions
        if name not in regions:
            raise TransferError(f"engine {peer} offers {sorted(regions)}, not {name!r}")
        return regions[name]

    def still_known(self, read: Read) -> None:
        """Raise TransferError when the peer failed, or renewed its agent or we ours, since the read was prepared."""
        if read.landing.agent is not self.agent or self.agent_of(read.peer) != read.agent:
            raise TransferError(
                f"the read from engine {read.peer} was prepared for agents that are gone; prepare again"
            )

    def land(self, runs: Sequence[Run], tensors: list[Tensor]) -> Landing:
        """Register destinations, if there are any."""
        with self.lock:
            return Landing(self.agent, tensors, self._register(runs) if runs else None)

    def leave(self, landing: Landing) -> None:
        """Free destinations, at once or when the last read in quarantine is settled."""
        with self.lock:
            landing.let_go = True
            self._free(landing)

    def put_away(self, read: Read) -> None:
        """Quarantine a read that did not finish: its agent is never talked to again, its destinations stay."""
        with self.lock:
            self._quarantine.append(read)
            read.landing.held += 1
            self._dead.add(read.agent)
            self.forget(read.peer)

    def _free(self, landing: Landing) -> None:
        if landing.let_go and not landing.held and landing.registered is not None:
            self._deregister(landing.agent, landing.registered)
            landing.registered, landing.tensors = None, []

    def _register(self, runs: Sequence[Run]) -> Any:
        """Register memory that is not registered yet: NIXL deregisters by address, so two that overlap end together."""
        for mine in self._runs.values():
            clash = next((run for run in runs for other in mine if run.overlaps(other)), None)
            if clash is not None:
                raise TransferError(f"{clash.nbytes} bytes at {clash.address:#x} are registered already")
        registered = self.agent.register_memory(self._descriptors(runs))
        self._runs[id(registered)] = list(runs)
        return registered

    def _deregister(self, agent: Any, descriptors: Any) -> None:
        agent.deregister_memory(descriptors)
        self._runs.pop(id(descriptors), None)

    def _descriptors(self, runs: Sequence[Run]) -> Any:
        memory = runs[0].memory if runs else "DRAM"
        if any(run.memory != memory for run in runs):
            raise TransferError("one region spans CPU and GPU memory; offer them as two")
        return self.agent.get_reg_descs([(run.address, run.nbytes, run.device, "") for run in runs], memory)


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _device(run: Run) -> str:
    return f"cuda:{run.device}" if run.memory == "VRAM" else "cpu"
