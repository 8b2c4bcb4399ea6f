"""`bench switch`: the pause of a switch that was prepared beside serving, against tear-down and recapture."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

from ...models import PSALTER
from .children import measured, words
from .machine import quantile

MODULE = "elasticfsm.runtime.bench.gpu.ranks"
SECONDS = 150.0


def run(size: int, model: Path = PSALTER, seconds: float = SECONDS) -> dict[str, Any]:
    """Run `size` ranks; returns figures of the slowest rank in each respect."""

    def arguments(store: str, scratch: Path) -> list[list[str]]:
        return [[str(rank), str(size), store, str(model), str(scratch / f"{rank}.json")] for rank in range(size)]

    results, logs, folder = measured(MODULE, arguments, seconds)
    with folder:
        if len(results) != size:
            raise words(logs)
        return _figures([json.loads(result.read_bytes()) for result in results], size)


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
        "memory_mib": found[0].get("memory", {}),
        "replayed": found[0]["replayed"],
        "eager": found[0]["eager"],
    }
