"""Expert-sized blocks from one process to another: NIXL through our interface, raw NIXL, and gloo, in one run.

Blocks lie apart on both sides, so nothing can be joined; every method moves the same blocks into the same memory, in
turns, and what arrived is compared with its source. Only ratios of one run mean anything.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import torch
from rich.console import Console
from rich.table import Table

from elasticfsm.errors import ElasticError, TransferError

from ..deadline import Deadline
from ..groups import Groups
from ..store import StoreClient, StoreServer
from ..weights.board import StoreBoard
from ..weights.by_nixl import NixlTransfer
from ..weights.by_p2p import P2pTransfer
from ..weights.regions import run_of
from ..weights.transfer import Piece, Route

MIB = 1 << 20
BLOCKS = (MIB // 2, MIB, 4 * MIB, 16 * MIB)
TOTAL = 64 * MIB  # bytes of one exchange
BAR = 0.9
SECONDS = 60.0
REGION = "experts"
WAYS = ("ours", "raw NIXL", "ours, unprepared", "gloo")


class Row(msgspec.Struct, kw_only=True):
    """One block size: GB/s are medians over rounds, ratios medians of the rounds' own ratios."""

    block: int
    count: int
    ours: float
    exchange: float
    raw: float
    gloo: float
    of_raw: float
    exchange_of_raw: float
    of_gloo: float
    right: bool


class TransferReport(msgspec.Struct, kw_only=True):
    """All block sizes; `ok` if every ratio to raw NIXL reaches the bar and every byte was right."""

    rounds: int
    bar: float
    rows: list[Row]

    @property
    def ok(self) -> bool:
        """Whether the bar is reached."""
        return all(row.of_raw >= self.bar and row.right for row in self.rows)


def run(rounds: int = 7, blocks: Sequence[int] = BLOCKS, total: int = TOTAL) -> TransferReport:
    """Run everything in two fresh processes; blocks for some seconds. ElasticError when one of them fails."""
    store = StoreServer()
    plan = _Plan(store=store.address, rounds=rounds, blocks=list(blocks), total=total)
    commands = [
        [sys.executable, "-m", __name__, role, msgspec.json.encode(plan).decode()] for role in ("source", "reader")
    ]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        for command in commands
    ]
    try:
        results = [_result(process) for process in started]  # the source first: its failure is the cause
    finally:
        for process in started:
            process.kill()
            process.wait(5)
        store.close()
    return TransferReport(rounds=rounds, bar=BAR, rows=results[1])


def _result(process: subprocess.Popen[str]) -> list[Row]:
    try:
        out, errors = process.communicate(timeout=5 * SECONDS)
    except subprocess.TimeoutExpired:
        raise ElasticError(f"the transfer bench took longer than {5 * SECONDS:g} s") from None
    if process.returncode != 0:
        raise ElasticError(f"the transfer bench failed: {errors.strip()[-800:]}")
    return msgspec.json.decode(out, type=list[Row])


def show(report: TransferReport, console: Console) -> None:
    """Print the table."""
    table = Table(title="GB/s, medians; ratios within a round", title_justify="left", box=None, padding=(0, 2, 0, 0))
    for name in ("block MB", "blocks", "ours", "unprepared", "raw NIXL", "gloo", "ours/raw", "ours/gloo", "bytes"):
        table.add_column(name, justify="right")
    for row in report.rows:
        speeds = [f"{speed:.2f}" for speed in (row.ours, row.exchange, row.raw, row.gloo)]
        colour = "green" if row.of_raw >= report.bar else "red"
        ratios = [f"[{colour}]{row.of_raw:.2f}[/]", f"{row.of_gloo:.1f}"]
        right = "right" if row.right else "[red]wrong[/]"
        table.add_row(f"{row.block / MIB:g}", str(row.count), *speeds, *ratios, right)
    console.print(table)
    console.print(f"bar: ours >= {report.bar:g} of raw NIXL: {'reached' if report.ok else '[red]missed[/]'}")


# -- the two processes -----------------------------------------------------------------------------------------


class _Plan(msgspec.Struct, kw_only=True):
    """What both processes know."""

    store: str
    rounds: int
    blocks: list[int]
    total: int


def main(role: str, text: str) -> None:
    """One of the two processes; the reader prints its rows."""
    torch.set_num_threads(1)
    plan = msgspec.json.decode(text, type=_Plan)
    rows = _source(plan) if role == "source" else _reader(plan)
    print(msgspec.json.encode(rows).decode())


def _pattern(total: int) -> torch.Tensor:
    """Twice as many bytes as one exchange moves: every second block is a gap."""
    return (torch.arange(2 * total // 4, dtype=torch.int32) * 2654435761 % 251).view(torch.uint8)


def _joined(store: str, me: str) -> Groups:
    groups = Groups(store)
    groups.plan("bench", 1, ["source", "reader"], me)
    groups.create("standby")
    groups.switch()
    return groups


def _source(plan: _Plan) -> list[Row]:
    """Offer the pattern, and send it by gloo in every round."""
    memory = _pattern(plan.total)
    nixl, gloo = NixlTransfer("source"), P2pTransfer("source")
    nixl.offer(REGION, [memory])
    StoreBoard(StoreClient(plan.store), "bench").set("offer", nixl.describe([REGION]))
    groups = _joined(plan.store, "source")
    active = groups.need("active")
    for block in plan.blocks:
        pieces = _pieces("reader", memory, block, plan.total)
        for _ in range(plan.rounds + 1):
            gloo.exchange([], pieces, Deadline(SECONDS, "send"), Route(active.eplb, active.members))
    active.world.barrier()  # the reader has read
    nixl.close()
    groups.close_all()
    return []


def _reader(plan: _Plan) -> list[Row]:
    # Each way has memory of its own: NIXL deregisters by address, so two registrations of one block are no two.
    memories = [torch.zeros(2 * plan.total, dtype=torch.uint8) for _ in WAYS]
    wanted = _pattern(plan.total)
    nixl, gloo = NixlTransfer("reader"), P2pTransfer("reader")
    groups = _joined(plan.store, "reader")
    active = groups.need("active")
    offer = StoreBoard(StoreClient(plan.store), "bench").get("offer") or b""
    nixl.connect("source", offer, Deadline(SECONDS, "connect"))
    rows = []
    for block in plan.blocks:
        pieces = [_pieces("source", memory, block, plan.total) for memory in memories]
        race = _Race(nixl, gloo, Route(active.eplb, active.members), pieces, plan.rounds)
        rows.append(race.row(block, wanted))
    active.world.barrier()
    nixl.close()
    groups.close_all()
    return rows


class _Race:
    """The ways to move one set of blocks, each into pieces of its own, all prepared as far as they can be."""

    def __init__(
        self, nixl: NixlTransfer, gloo: P2pTransfer, route: Route, pieces: list[list[Piece]], rounds: int
    ) -> None:
        self._pieces, self._rounds = pieces, rounds
        self._prepared = nixl.prepare([pieces[0]] * (rounds + 1))
        self._raw = _Raw(nixl, pieces[1])
        self._ways: list[Callable[[int], None]] = [
            lambda index: self._prepared.run(index, [], Deadline(SECONDS, "read")),
            lambda index: self._raw.run(),
            lambda index: nixl.exchange(pieces[2], [], Deadline(SECONDS, "read")),
            lambda index: gloo.exchange(pieces[3], [], Deadline(SECONDS, "receive"), route),
        ]

    def row(self, block: int, wanted: torch.Tensor) -> Row:
        """Take turns, the order changing; the first round warms up."""
        times, right = [], True
        for index in range(self._rounds + 1):
            found: dict[int, float] = {}
            for way in ([0, 1, 2, 3], [1, 0, 3, 2])[index % 2]:
                for piece in self._pieces[way]:
                    piece.tensor.zero_()
                begin = time.perf_counter()
                self._ways[way](index)
                found[way] = time.perf_counter() - begin
                right = right and all(torch.equal(piece.tensor, _of(wanted, piece)) for piece in self._pieces[way])
            times.append([found[way] for way in range(len(WAYS))])
        self._prepared.release()
        self._raw.release()
        return _row(block, len(self._pieces[0]), times[1:], right)


def _pieces(peer: str, memory: torch.Tensor, block: int, total: int) -> list[Piece]:
    starts = range(0, 2 * total - block, 2 * block)
    return [Piece(peer, REGION, start, memory[start : start + block]) for start in starts]


def _of(wanted: torch.Tensor, piece: Piece) -> torch.Tensor:
    return wanted[piece.offset : piece.offset + piece.tensor.numel()]


def _row(block: int, count: int, times: list[list[float]], right: bool) -> Row:
    ours, raw, exchange, gloo = (list(column) for column in zip(*times, strict=True))

    def speed(column: list[float]) -> float:
        return block * count / statistics.median(column) / 1e9

    def ratio(slow: list[float], quick: list[float]) -> float:
        return statistics.median(a / b for a, b in zip(slow, quick, strict=True))

    return Row(
        block=block,
        count=count,
        ours=speed(ours),
        exchange=speed(exchange),
        raw=speed(raw),
        gloo=speed(gloo),
        of_raw=ratio(raw, ours),
        exchange_of_raw=ratio(raw, exchange),
        of_gloo=ratio(gloo, ours),
        right=right,
    )


class _Raw:
    """The same READ by nothing but NIXL's own calls, with everything prepared."""

    def __init__(self, nixl: NixlTransfer, pieces: Sequence[Piece]) -> None:
        agent: Any = nixl.agent
        self._agent = agent
        local = [run_of(piece.tensor) for piece in pieces]
        remote = [
            nixl.region_of(piece.peer, piece.region).cut(piece.offset, piece.tensor.numel())[0] for piece in pieces
        ]
        self._registered = agent.register_memory(
            agent.get_reg_descs([(run.address, run.nbytes, 0, "") for run in local], "DRAM")
        )
        descs = [
            agent.get_xfer_descs([(run.address, run.nbytes, 0) for run in side], "DRAM") for side in (local, remote)
        ]
        self._handle = agent.initialize_xfer("READ", *descs, nixl.agent_of("source"))

    def run(self) -> None:
        """Post and poll without a pause."""
        state = self._agent.transfer(self._handle)
        while state == "PROC":
            state = self._agent.check_xfer_state(self._handle)
        if state != "DONE":
            raise TransferError(f"raw NIXL ended with {state}")

    def release(self) -> None:
        """Let go of handle and registration."""
        self._handle.release()
        self._agent.deregister_memory(self._registered)


if __name__ == "__main__":
    main(*sys.argv[1:])
