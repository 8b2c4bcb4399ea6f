"""Weights read by NIXL: receiver-driven READs out of registered memory; the side that serves spends no time on it.

The rules kept here were measured, not guessed:
- an agent's name carries engine and epoch and is never reused (a restarted namesake is refused by its peers);
- a destination is quarantined from the post until DONE, and after an error until the peer is known quiet:
  released handles and removed peers go on writing;
- deregistering revokes nothing, so a source waits for its readers before it withdraws;
- NIXL waits for ever, so every wait here has our deadline; a typed exception is terminal for that peer;
- error mode `peer` (`none` may hang) and no progress thread of NIXL (it spins on a whole core): while something is
  offered a thread of ours looks every few milliseconds, because peers cannot wire up to an engine that never does;
  a connection is made and tried with one byte before it is needed.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from elasticfsm.errors import GroupError, TransferError

from ..deadline import Deadline
from .bindings import bindings, error_types
from .pump import Pump
from .regions import Region, Run, as_bytes, batches, joined, merged, pairs, run_of
from .transfer import Kind, Offer, Piece, Route, decode_offer

POLL_SECONDS = 0.0005


@dataclass
class _Peer:
    agent: str
    regions: dict[str, Region]


@dataclass
class _Read:
    """Pieces from one peer, posted batch by batch; keeps its destinations alive."""

    peer: str
    agent: str
    batches: list[list[tuple[Run, Run]]]  # (local, remote)
    tensors: list[Tensor]
    registered: list[Any] = field(default_factory=list)
    handle: Any = None
    failed: bool = False


class NixlTransfer:
    """Transfer by NIXL over UCX. One agent, one lock; calls from several threads take turns."""

    kind: Kind = "nixl"

    def __init__(self, engine: str) -> None:
        self.engine = engine
        self.moved: dict[str, int] = {"nixl": 0}
        self._api: Any = bindings()
        self._errors = error_types(self._api)
        self._lock = threading.RLock()
        self._incarnation = os.urandom(4).hex()  # a restarted engine keeps its id but not its agents' names
        self._epoch = 0
        self._tensors: dict[str, list[Tensor]] = {}
        self._regions: dict[str, Region] = {}
        self._registered: dict[str, Any] = {}
        self._peers: dict[str, _Peer] = {}
        self._registrations = 0
        self._quarantine: list[_Read] = []
        self._dead: set[str] = set()  # agents that failed once; their engines come back under another name
        self._agent: Any = self._new_agent()
        self._pump = Pump(self.pump, f"nixl-pump-{engine}")

    def _new_agent(self) -> Any:
        api = self._api
        sync = api.nixl_thread_sync_t.NIXL_THREAD_SYNC_RW
        config = api.nixl_agent_config(enable_prog_thread=False, backends=[], sync_mode=sync)
        agent = api.nixl_agent(f"{self.engine}@{self._incarnation}.{self._epoch}", config)
        options = {**agent.get_plugin_params("UCX"), "ucx_error_handling_mode": "peer"}
        agent.create_backend("UCX", options)
        return agent

    @property
    def agent_name(self) -> str:
        """Name of the agent in use: engine, incarnation, epoch."""
        return str(self._agent.name)

    @property
    def registrations(self) -> int:
        """How many memory registrations are held, quarantined ones included."""
        return self._registrations

    @property
    def quarantined(self) -> int:
        """How many failed reads still keep their destinations."""
        return len(self._quarantine)

    # --- the side that is read from

    def offer(self, region: str, tensors: Sequence[Tensor]) -> None:
        """See Transfer.offer; registers the memory, neighbours as one."""
        with self._lock:
            self.withdraw(region)
            runs = merged([run_of(tensor) for tensor in tensors])
            self._registered[region] = self._register(runs)
            self._tensors[region] = list(tensors)
            self._regions[region] = Region(region, runs)
            self._pump.start()

    def describe(self, regions: Sequence[str]) -> bytes:
        """See Transfer.describe; the metadata covers these regions and nothing else."""
        self._pump.check()
        with self._lock:
            runs = [run for name in regions for run in self._regions[name].runs]
            metadata = self._agent.get_partial_agent_metadata(self._descriptors(runs), inc_conn_info=True)
            named = [self._regions[name] for name in regions]
            return msgspec.msgpack.encode(Offer(self.engine, self.kind, self.agent_name, metadata, named))

    def withdraw(self, region: str) -> None:
        """See Transfer.withdraw; deregisters."""
        with self._lock:
            descriptors = self._registered.pop(region, None)
            if descriptors is not None:
                self._deregister(descriptors)
            self._regions.pop(region, None)
            self._tensors.pop(region, None)
            if not self._regions:
                self._pump.stop()

    def pump(self) -> None:
        """See Transfer.pump."""
        if not self._lock.acquire(blocking=False):
            return  # whoever holds the lock makes progress
        try:
            self._agent.get_new_notifs()
        finally:
            self._lock.release()

    # --- the side that reads

    def connect(self, peer: str, offer: bytes, deadline: Deadline) -> None:
        """See Transfer.connect; adds the agent, wires up and reads one byte of its first region."""
        decoded = decode_offer(offer, peer, self.kind)
        if decoded.agent in self._dead:
            raise TransferError(f"agent {decoded.agent} of engine {peer} failed before; it has to renew its name first")
        with self._lock:
            known = self._peers.get(peer)
            offered = {region.name: region for region in decoded.regions}
            if known and known.agent != decoded.agent:
                self.forget(peer)
            elif known and offered.items() <= known.regions.items():
                return
            try:
                name = _text(self._agent.add_remote_agent(decoded.metadata))
                self._agent.make_connection(name)
            except self._errors as error:
                self.forget(peer)
                raise TransferError(f"the NIXL metadata of engine {peer} was refused: {error!r}") from error
            if name != decoded.agent:
                self._agent.remove_remote_agent(name)
                raise TransferError(f"engine {peer} announced agent {decoded.agent} but its metadata is of {name}")
            before = known.regions if known and known.agent == name else {}
            self._peers[peer] = _Peer(name, {**before, **offered})
        first = next((region for region in decoded.regions if region.nbytes), None)
        if first is not None:
            probe = torch.zeros(1, dtype=torch.uint8, device=_device(first.runs[0]))
            self._read([Piece(peer, first.name, 0, probe)], deadline)

    def exchange(
        self, incoming: Sequence[Piece], outgoing: Sequence[Piece], deadline: Deadline, route: Route | None = None
    ) -> None:
        """See Transfer.exchange; outgoing pieces are the peers' business, and no route is needed."""
        self._read(incoming, deadline)
        self.moved["nixl"] += sum(as_bytes(piece.tensor).numel() for piece in incoming)

    def forget(self, peer: str) -> None:
        """See Transfer.forget; the next `connect` to it needs an agent name not seen before."""
        with self._lock:
            known = self._peers.pop(peer, None)
            if known is not None:
                self._agent.remove_remote_agent(known.agent)

    def settle(self, peer: str) -> None:
        """Free the destinations of failed reads from a peer that is known to be gone or to have closed its side."""
        with self._lock:
            for read in [read for read in self._quarantine if read.peer == peer]:
                self._quarantine.remove(read)
                self._finish(read)

    def renew(self) -> None:
        """Go on under a new agent name, with the same regions; peers need a new description. For use after an error."""
        with self._lock:
            offered = dict(self._tensors)
            self.close()
            self._epoch += 1
            self._agent = self._new_agent()
            for region, tensors in offered.items():
                self.offer(region, tensors)

    def close(self) -> None:
        """See Transfer.close; what is quarantined stays allocated until the process ends."""
        with self._lock:
            for peer in list(self._peers):
                self.forget(peer)
            for region in list(self._registered):
                self.withdraw(region)
            if self._quarantine:
                _ABANDONED.append((self._agent, self._quarantine))
                self._registrations -= sum(len(read.registered) for read in self._quarantine)
                self._quarantine = []

    # --- one read

    def _read(self, pieces: Sequence[Piece], deadline: Deadline) -> None:
        self._pump.check()
        reads = self._prepare_all(pieces)
        try:
            while reads := [read for read in reads if not self._advance(read)]:
                time.sleep(deadline.slice(POLL_SECONDS))
        except self._errors as error:
            at = next((read.peer for read in reads if read.failed), "?")
            raise TransferError(f"engine {self.engine} could not read from engine {at}: {error!r}") from error
        except GroupError as error:  # expired or cancelled
            late = ", ".join(read.peer for read in reads)
            raise TransferError(f"engine {self.engine} still reads from engine {late}: {error}") from error
        finally:
            for read in reads:
                self._fail(read)

    def _prepare_all(self, pieces: Sequence[Piece]) -> list[_Read]:
        reads: list[_Read] = []
        with self._lock:
            try:
                for peer in dict.fromkeys(piece.peer for piece in pieces):
                    reads.append(self._prepare(peer, pieces))
            except TransferError:
                for read in reads:
                    self._finish(read)
                raise
        return reads

    def _prepare(self, peer: str, pieces: Sequence[Piece]) -> _Read:
        known = self._peers.get(peer)
        if known is None:
            raise TransferError(f"engine {self.engine} is not connected to engine {peer} (any more); connect first")
        mine = [piece for piece in pieces if piece.peer == peer]
        cut: list[tuple[Run, Run]] = []
        for piece in mine:
            region = known.regions.get(piece.region)
            if region is None:
                raise TransferError(f"engine {peer} offers {sorted(known.regions)}, not {piece.region!r}")
            cut += pairs(run_of(piece.tensor), region.cut(piece.offset, as_bytes(piece.tensor).numel()))
        read = _Read(peer, known.agent, batches(joined(cut)), [piece.tensor for piece in mine])
        read.registered.append(self._register(merged(sorted({local for local, _ in cut}, key=lambda r: r.address))))
        return read

    def _advance(self, read: _Read) -> bool:
        """Post the next batch or look at the one under way; True when nothing is left."""
        with self._lock:
            read.failed = True  # until NIXL has returned
            if read.handle is None:
                read.handle = self._handle(read)
                state = self._agent.transfer(read.handle)
            else:
                state = self._agent.check_xfer_state(read.handle)
            read.failed = False
            if state != "DONE":
                return False
            read.handle.release()
            read.handle = None
            read.batches.pop(0)
            if not read.batches:
                self._finish(read)
            return not read.batches

    def _handle(self, read: _Read) -> Any:
        batch = read.batches[0]
        local = _array([pair[0] for pair in batch]), batch[0][0].memory
        remote = _array([pair[1] for pair in batch]), batch[0][1].memory
        agent = self._agent
        return agent.initialize_xfer("READ", agent.get_xfer_descs(*local), agent.get_xfer_descs(*remote), read.agent)

    def _finish(self, read: _Read) -> None:
        for descriptors in read.registered:
            self._deregister(descriptors)
        read.registered.clear()
        read.handle = None

    def _fail(self, read: _Read) -> None:
        """Put away a read that did not finish: its agent is never talked to again, its destinations stay."""
        with self._lock:
            if read.handle is None and not read.failed:
                self._finish(read)
                return
            self._quarantine.append(read)
            self._dead.add(read.agent)
            self.forget(read.peer)

    def _register(self, runs: Sequence[Run]) -> Any:
        registered = self._agent.register_memory(self._descriptors(runs))
        self._registrations += 1
        return registered

    def _deregister(self, descriptors: Any) -> None:
        self._agent.deregister_memory(descriptors)
        self._registrations -= 1

    def _descriptors(self, runs: Sequence[Run]) -> Any:
        memory = runs[0].memory if runs else "DRAM"
        if any(run.memory != memory for run in runs):
            raise TransferError("one region spans CPU and GPU memory; offer them as two")
        return self._agent.get_reg_descs([(run.address, run.nbytes, run.device, "") for run in runs], memory)


_ABANDONED: list[tuple[Any, list[_Read]]] = []  # agents whose peers may still write; they end with the process


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _device(run: Run) -> str:
    return f"cuda:{run.device}" if run.memory == "VRAM" else "cpu"


def _array(runs: Sequence[Run]) -> Any:
    return np.array([(run.address, run.nbytes, run.device) for run in runs], dtype=np.uint64)
