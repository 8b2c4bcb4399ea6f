"""One rank of the switch measurement: `python -m ... RANK SIZE STORE MODEL OUT`. Real NCCL and graphs, no coordinator.

It steps on one generation, gets another one ready in a thread while it goes on stepping, switches, and steps; then it
does the same again the usual way: tear down, create, capture, all in the foreground.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from ...agree import StepAgreement
from ...creation import Limits
from ...engine.on_gpu import GpuCore
from ...engine.request import Request
from ...experts.placement import Placement
from ...groups import Groups
from ...rehearsal import Rehearsal
from ...streams import own_stream

STEPS = 60
MEMORY_RANKS = 2  # creating groups of more takes too long on one GPU
SLOT, READY = "slot", "ready"


class Rank:
    """An engine core, its groups, and a clock."""

    def __init__(self, rank: int, size: int, store: str, model: str) -> None:
        self.rank, self.size = rank, size
        self.members = [f"r{index}" for index in range(size)]
        torch.cuda.init()  # type: ignore[no-untyped-call]
        torch.cuda.set_stream(own_stream())
        self._side = own_stream()
        sys.setswitchinterval(0.0005)
        self.groups = Groups(store, limits=Limits(connect=60.0), backend="nccl")
        self.rehearsal = Rehearsal(self.groups)
        slots = -(-self._experts(model) // size) + 2
        self.core = GpuCore(model, slots, 16)
        config = self.core.config
        placement = Placement.initial(config.num_hidden_layers, config.num_experts, size, slots, "bench")
        self.core.load(placement.physical_to_logical, rank)
        self.core.allocate_cache(256)
        for layer in range(placement.layers):
            self.core.set_routing(layer, placement.row(layer))
        self.agreement = StepAgreement([SLOT, READY])
        self.number = 0
        self.steps = 0

    @staticmethod
    def _experts(model: str) -> int:
        from ...engine.config import ModelConfig

        return ModelConfig.read(model).num_experts

    def create(self, name: str) -> None:
        """A generation under `name`; all ranks."""
        self.number += 1
        self.groups.plan(f"bench{self.number}", self.number, self.members, f"r{self.rank}")
        self.groups.create(name)

    def feed(self, requests: int = 8) -> None:
        """Requests enough to decode for ever."""
        for index in range(requests):
            prompt = [(7 * index + step) % 200 + 1 for step in range(8)]
            self.core.submit(Request(f"{self.steps}/{index}", prompt, 500))

    def step(self, votes: set[str] = frozenset()) -> tuple[float, frozenset[str]]:  # type: ignore[assignment]
        """One step with its agreement; milliseconds and the votes that were full."""
        begin = time.perf_counter()
        active = self.groups.need("active")
        self.core.step(active, 60.0)
        agreed = self.agreement.agree(
            active.dp, votes, True, generation=active.number, operation="bench" if votes else "", step=self.steps
        )
        self.steps += 1
        return 1000 * (time.perf_counter() - begin), agreed.votes

    def first(self) -> None:
        """The first generation."""
        self.create("standby")
        self.groups.switch()
        self.feed()
        for _ in range(20):
            self.step()

    def alone(self) -> list[float]:
        """Steps with nothing beside them."""
        return [self.step()[0] for _ in range(STEPS)]

    def beside(self) -> dict[str, Any]:
        """Prepare in a thread while stepping, rehearse in a slot, switch; all step times."""
        created, ready = threading.Event(), threading.Event()
        failed: list[BaseException] = []
        posted = threading.Event()

        def prepare() -> None:
            try:
                with torch.cuda.stream(self._side):
                    self.create("standby")
                    created.set()
                    posted.wait(60)
                    self.rehearsal.wait("standby", 60)
                    self.core.prepare(self.groups.need("standby"))
                ready.set()
            except BaseException as error:  # told by the main loop
                failed.append(error)

        begin = time.perf_counter()
        thread = threading.Thread(target=prepare, daemon=True)
        thread.start()
        meanwhile: list[float] = []
        slot = 0.0
        while not failed:
            votes = {READY} if ready.is_set() else {SLOT} if created.is_set() and not posted.is_set() else set()
            took, full = self.step(votes)
            if READY in full:
                break
            if SLOT in full:
                mark = time.perf_counter()
                self.rehearsal.post("standby")
                slot = 1000 * (time.perf_counter() - mark)
                posted.set()
            meanwhile.append(took)
        if failed:
            raise failed[0]
        prepared = time.perf_counter() - begin
        mark = time.perf_counter()
        self.groups.join("standby", 10.0)
        self.groups.switch()
        took, _ = self.step()
        pause = 1000 * (time.perf_counter() - mark)
        graph_bytes = sum(graph.nbytes for graph in self.core._graphs.values())
        mark = time.perf_counter()
        self.groups.destroy("retired")
        after = [self.step()[0] for _ in range(STEPS)]
        return {
            "prepare_s": prepared,
            "meanwhile": meanwhile,
            "slot_ms": slot,
            "pause_ms": pause,
            "after": after,
            "graph_bytes": graph_bytes,
            "reserved_bytes": torch.cuda.memory_reserved(),
        }

    def foreground(self) -> float:
        """The usual way: nobody serves while the old generation goes and the new one comes. Milliseconds to a token."""
        mark = time.perf_counter()
        self.groups.destroy("active")
        self.groups.reaper.wait_empty(_deadline(60))
        self.create("standby")
        self.groups.switch()
        self.step()
        return 1000 * (time.perf_counter() - mark)

    def generations(self, graphs: bool, count: int = 5) -> list[list[int]]:
        """Make a generation, step on it, destroy the one before, again and again: MiB after each.

        In use on the GPU by all processes, reserved and allocated by torch in this one. Without graphs a step is eager.
        """
        found = []
        self.core._use_graphs = graphs
        for _ in range(count):
            self.create("standby")
            if graphs:
                with torch.cuda.stream(self._side):
                    self.core.prepare(self.groups.need("standby"))
            self.groups.join("standby", 30.0)
            self.groups.switch()
            for _ in range(3):
                self.step()
            self.groups.destroy("retired")
            self.groups.reaper.wait_empty(_deadline(60))
            self.groups.need("active").dp.barrier()
            free, total = torch.cuda.mem_get_info()
            held = (total - free, torch.cuda.memory_reserved(), torch.cuda.memory_allocated())
            found.append([number >> 20 for number in held])
            self.groups.need("active").dp.barrier()
        return found


def _deadline(seconds: float) -> Any:
    from ...deadline import Deadline

    return Deadline(seconds, "the reaper")


def main(rank: int, size: int, store: str, model: str, out: str) -> None:
    """The whole measurement of one rank."""
    mine = Rank(rank, size, store, model)
    mine.first()
    found: dict[str, Any] = {"alone": mine.alone(), "beside": mine.beside()}
    found["beside_again"] = mine.beside()
    found["foreground_ms"] = [mine.foreground() for _ in range(2)]
    if size <= MEMORY_RANKS:
        found["memory"] = {"without graphs": mine.generations(False), "with graphs": mine.generations(True)}
    found["replayed"], found["eager"] = mine.core.replayed, mine.core.eager
    Path(out).write_text(json.dumps(found))
    mine.groups.close_all(10)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:6])
