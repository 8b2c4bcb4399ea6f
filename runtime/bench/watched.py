"""What monitor and journal cost a forward step: engines that serve, watched and unwatched in turns in one run.

`python -m elasticfsm.runtime.bench.watched engine ...` is an engine that looks away in every second block of steps, all
members in the same ones, and at its end writes how long the steps of each block took into its directory.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec

from elasticfsm.bench.step import Figure
from elasticfsm.errors import ElasticError

from ..demo.workload import Workload
from ..deployment import Deployment
from ..elastic import Elastic
from ..engine import process
from ..engine.config import ModelConfig
from ..engine.process import IDLE_SECONDS, EngineProcess
from ..group import Unwatched
from ..launch import Launcher
from ..models import PSALTER
from ..options import Options

DIRECTORY = "ELASTICFSM_WATCHED"
BLOCK = 40  # steps watched, then as many unwatched
WARM = 4  # blocks that are left out
CLIENTS = 6
SIZE = 2  # of the demo
BAR = 2.0  # percent


class Block(msgspec.Struct, frozen=True):
    """Steps in a row of one engine: the median of their seconds, and the process's CPU seconds per step."""

    watched: bool
    seconds: float
    cpu: float


class Cost(msgspec.Struct, frozen=True):
    """Of a step, in milliseconds without; and what watching adds to it, in percent: medians over pairs of blocks."""

    step: float
    added: float
    cpu: float
    cpu_added: float
    pairs: int


class _Watching:
    """Switches monitor and journal of one engine on and off between two steps."""

    def __init__(self, elastic: Elastic) -> None:
        self._elastic = elastic
        self._monitor = elastic.monitor
        self._unwatched = Unwatched()

    def set(self, on: bool) -> None:
        """From the next step on."""
        elastic: Any = self._elastic
        if on:
            vars(elastic.journal).pop("put", None)
        else:
            elastic.journal.put = _nothing
        elastic.machines.monitor = self._monitor if on else None
        active = elastic.groups.need("active")
        for group in (active.world, active.dp, active.ep, active.eplb):
            group.watch = self._monitor if on else self._unwatched


def _nothing(event: str, machine: str = "", /, **fields: object) -> None:
    """A journal that keeps nothing."""


class WatchedProcess(EngineProcess):
    """An engine that measures its own steps."""

    blocks: list[Block]

    def _loop(self) -> None:
        elastic = self._elastic()
        self.blocks = []
        number, cpu, last = -1, 0.0, 0.0
        times: list[float] = []
        watching = _Watching(elastic)
        while not self.ending.is_set():
            self._intake()
            before = elastic.board.step
            if elastic.machines.state_of("serving.engine") != "absent" and before // BLOCK != number:
                now = time.process_time()
                self._note(number, times, now - cpu)
                number, times, cpu, last = before // BLOCK, [], now, 0.0
                watching.set(number % 2 == 0)
            worked = elastic.turn()
            now = time.perf_counter()
            if elastic.board.step > before:
                times += [now - last] if last else []
                last = now
            if not worked:
                last = 0.0
                elastic.wait(IDLE_SECONDS)
        watching.set(True)
        Path(os.environ[DIRECTORY], f"{self.joining.engine}.json").write_bytes(msgspec.json.encode(self.blocks))

    def _note(self, number: int, times: list[float], cpu: float) -> None:
        if number >= WARM and len(times) > BLOCK // 2:
            self.blocks.append(Block(number % 2 == 0, statistics.median(times), cpu / BLOCK))


class WatchedLauncher(Launcher):
    """Starts such engines."""

    module = "elasticfsm.runtime.bench.watched"


def measure(seconds: float) -> Cost:
    """Serve for so long with the demo's model, size and load; blocks. ElasticError when there were too few steps."""
    with tempfile.TemporaryDirectory(prefix="watched-") as directory:
        os.environ[DIRECTORY] = directory
        kind: type[Deployment] = type("WatchedDeployment", (Deployment,), {"launchers": WatchedLauncher})
        deployment = kind.start(PSALTER, SIZE, Options(eplb_interval=1 << 40))
        try:
            config = ModelConfig.read(PSALTER)
            load = Workload(deployment.submit, CLIENTS, config.max_position_embeddings, config.vocab_size)
            load.start()
            time.sleep(seconds)
            load.stop()
        finally:
            deployment.close()
            del os.environ[DIRECTORY]
        files = sorted(Path(directory).glob("*.json"))
        found = [msgspec.json.decode(each.read_bytes(), type=list[Block]) for each in files]
    return compare(found)


def compare(engines: list[list[Block]]) -> Cost:
    """Each watched block with the unwatched one after it, on every engine."""
    pairs = [
        (one, other)
        for blocks in engines
        for one, other in itertools.pairwise(blocks)
        if one.watched and not other.watched
    ]
    if len(pairs) < 5:
        raise ElasticError(f"{len(pairs)} pairs of blocks were served, expected 5 at least; measure for longer")
    return Cost(
        step=1000 * statistics.median(off.seconds for _, off in pairs),
        added=100 * statistics.median(on.seconds / off.seconds - 1 for on, off in pairs),
        cpu=1000 * statistics.median(off.cpu for _, off in pairs),
        cpu_added=100 * statistics.median(on.cpu / off.cpu - 1 for on, off in pairs),
        pairs=len(pairs),
    )


def figures_of(cost: Cost) -> list[Figure]:
    """For the table of `bench step`, with the bar."""
    return [
        Figure(f"forward step of {SIZE} engines, unwatched", cost.step, "ms"),
        Figure("... which monitor and journal add to", cost.added, "%", BAR),
        Figure("CPU time of an engine per step, unwatched", cost.cpu, "ms"),
        Figure("... which monitor and journal add to, writing included", cost.cpu_added, "%"),
    ]


if __name__ == "__main__":
    from elasticfsm.cli import app

    process.EngineProcess = WatchedProcess  # type: ignore[misc]
    app()
