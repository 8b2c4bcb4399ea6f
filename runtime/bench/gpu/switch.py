"""`bench switch`: the pause of a switch that was prepared beside serving, against tear-down and recapture."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from elasticfsm.errors import ElasticError

from ...gpus import seats
from ...models import PSALTER
from ...store import StoreServer
from .machine import need_gpu

SECONDS = 150.0


def run(size: int, model: Path = PSALTER, seconds: float = SECONDS) -> dict[str, Any]:
    """Run `size` ranks; returns figures of the slowest rank in each respect."""
    need_gpu()
    places = seats()
    store = StoreServer()
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        processes = []
        for rank in range(size):
            command = [sys.executable, "-m", "elasticfsm.runtime.bench.gpu.ranks", str(rank), str(size)]
            command += [store.address, str(model), str(scratch / f"{rank}.json")]
            with (scratch / f"{rank}.log").open("wb") as log:
                environment = {**os.environ, **places.take(f"r{rank}"), "OMP_NUM_THREADS": "1"}
                processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
        try:
            for process in processes:
                process.wait(seconds)
        except subprocess.TimeoutExpired:
            pass
        finally:
            for process in processes:
                process.kill()
                process.wait()
            store.close()
        reports = [scratch / f"{rank}.json" for rank in range(size)]
        if not all(report.is_file() for report in reports):
            words = [(scratch / f"{rank}.log").read_text(errors="replace")[-1500:] for rank in range(size)]
            raise ElasticError("a rank of the switch measurement failed: " + "\n---\n".join(words))
        return _figures([json.loads(report.read_bytes()) for report in reports], size)


def _figures(found: list[dict[str, Any]], size: int) -> dict[str, Any]:
    unit = statistics.median(found[0]["alone"])
    sides = [rank[way] for rank in found for way in ("beside", "beside_again")]
    meanwhile = [took for side in sides for took in side["meanwhile"]]
    return {
        "ranks": size,
        "step_ms": unit,
        "alone_p99_ms": quantile(found[0]["alone"], 0.99),
        "alone_max_ms": max(found[0]["alone"]),
        "steps_meanwhile": len(meanwhile),
        "meanwhile_p50": statistics.median(meanwhile) / unit,
        "meanwhile_p99": quantile(meanwhile, 0.99) / unit,
        "meanwhile_max": max(meanwhile) / unit,
        "slot_ms": max(side["slot_ms"] for side in sides),
        "pause_ms": max(side["pause_ms"] for side in sides),
        "pause_steps": max(side["pause_ms"] for side in sides) / unit,
        "after_max": max(took for side in sides for took in side["after"]) / unit,
        "prepare_s": [side["prepare_s"] for side in found[0:1] for side in (side["beside"], side["beside_again"])],
        "foreground_ms": max(min(rank["foreground_ms"]) for rank in found),
        "foreground_steps": max(min(rank["foreground_ms"]) for rank in found) / unit,
        "graph_bytes": max(side["graph_bytes"] for side in sides),
        "reserved_bytes": max(side["reserved_bytes"] for side in sides),
        "replayed": found[0]["replayed"],
        "eager": found[0]["eager"],
    }


def quantile(values: list[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
