"""NIXL READs that are prepared once and run later: destinations registered together, descriptors joined, handles made.

A destination is *quarantined* from the post until DONE; after an error until the peer's side is known to be quiet:
released handles and removed peers go on writing. So a landing is let go only when no read of it is held any more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from elasticfsm.errors import GroupError, TransferError

from ..deadline import Deadline
from .regions import Run, as_bytes, batches, covering, joined, pairs, run_of
from .transfer import Piece, Route

if TYPE_CHECKING:
    from .by_nixl import NixlTransfer

POLL_SECONDS = 0.0005
SPIN_SECONDS = 0.003  # a read between two GPUs takes less than a sleep does


@dataclass
class Landing:
    """Registered memory that reads write into; it stays allocated and registered as long as this object is held."""

    agent: Any
    tensors: list[Tensor]
    registered: Any
    held: int = 0  # reads in quarantine
    let_go: bool = False


@dataclass
class Read:
    """All that one exchange reads from one peer: a handle per batch, posted one after the other."""

    peer: str
    agent: str
    landing: Landing
    batches: list[list[tuple[Run, Run]]]  # (local, remote)
    handles: list[Any] = field(default_factory=list)
    at: int = 0
    posted: bool = False  # bytes may land


class NixlReads:
    """The exchanges of one `Transfer.prepare`; a list of reads for each, one read a peer."""

    def __init__(self, transfer: NixlTransfer, exchanges: Sequence[Sequence[Piece]]) -> None:
        self._transfer = transfer
        self._sizes = [sum(as_bytes(piece.tensor).numel() for piece in pieces) for pieces in exchanges]
        cuts = [_cut(transfer, pieces) for pieces in exchanges]
        local = [here for cut in cuts for pair_list in cut.values() for here, _ in pair_list]
        tensors = [piece.tensor for pieces in exchanges for piece in pieces]
        self._on_device = any(tensor.is_cuda for tensor in tensors)
        self._landing = transfer.land(covering(local), tensors)
        try:
            self._exchanges = [
                [self._read(peer, transfer.agent_of(peer), found) for peer, found in cut.items()] for cut in cuts
            ]
        except transfer.errors as error:
            transfer.leave(self._landing)
            raise TransferError(f"engine {transfer.engine} cannot read what was offered: {error!r}") from error

    def run(self, index: int, outgoing: Sequence[Piece], deadline: Deadline, route: Route | None = None) -> None:
        """See Prepared.run; outgoing pieces are the peers' business, and no route is needed."""
        transfer = self._transfer
        transfer.check()
        if self._on_device:  # a READ knows no streams: what this thread has queued on its memory ends before
            torch.cuda.current_stream().synchronize()
        reads = self._exchanges[index]
        failing = ""
        spin = time.monotonic() + (SPIN_SECONDS if self._on_device else 0.0)
        try:
            while True:
                left = []
                for read in reads:
                    failing = read.peer
                    if not self._advance(read):
                        left.append(read)
                if not left:
                    break
                reads = left
                time.sleep(deadline.slice(POLL_SECONDS) if time.monotonic() > spin else 0)
        except transfer.errors as error:
            raise TransferError(f"engine {transfer.engine} could not read from engine {failing}: {error!r}") from error
        except GroupError as error:  # expired or cancelled
            late = ", ".join(read.peer for read in reads)
            raise TransferError(f"engine {transfer.engine} still reads from engine {late}: {error}") from error
        finally:
            for read in self._exchanges[index]:
                if read.posted:
                    transfer.put_away(read)
        transfer.moved["nixl"] += self._sizes[index]

    def release(self) -> None:
        """See Prepared.release."""
        with self._transfer.lock:
            for reads in self._exchanges:
                for read in reads:
                    read.handles = [] if not read.posted else read.handles
            self._transfer.leave(self._landing)

    def _read(self, peer: str, agent: str, cut: list[tuple[Run, Run]]) -> Read:
        read = Read(peer, agent, self._landing, batches(joined(cut)))
        with self._transfer.lock:
            read.handles = [self._handle(batch, agent) for batch in read.batches]
        return read

    def _handle(self, batch: list[tuple[Run, Run]], remote_agent: str) -> Any:
        local = _array([pair[0] for pair in batch]), batch[0][0].memory
        remote = _array([pair[1] for pair in batch]), batch[0][1].memory
        agent = self._transfer.agent
        return agent.initialize_xfer("READ", agent.get_xfer_descs(*local), agent.get_xfer_descs(*remote), remote_agent)

    def _advance(self, read: Read) -> bool:
        """Post the next batch or look at the one under way; True when nothing is left."""
        if read.at == len(read.handles):
            return True
        transfer = self._transfer
        with transfer.lock:
            if read.posted:
                state = transfer.agent.check_xfer_state(read.handles[read.at])
            else:
                transfer.still_known(read)
                read.posted = True
                state = transfer.agent.transfer(read.handles[read.at])
            if state != "DONE":
                return False
            read.posted = False
            read.handles[read.at].release()
            read.at += 1
            return read.at == len(read.handles)


def _cut(transfer: NixlTransfer, pieces: Sequence[Piece]) -> dict[str, list[tuple[Run, Run]]]:
    """Return for each peer the (local, remote) runs of its pieces, in order."""
    cut: dict[str, list[tuple[Run, Run]]] = {}
    for piece in pieces:
        region = transfer.region_of(piece.peer, piece.region)
        runs = pairs(run_of(piece.tensor), region.cut(piece.offset, as_bytes(piece.tensor).numel()))
        cut.setdefault(piece.peer, []).extend(runs)
    return cut


def _array(runs: Sequence[Run]) -> Any:
    return np.array([(run.address, run.nbytes, run.device) for run in runs], dtype=np.uint64)
