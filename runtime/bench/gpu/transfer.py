"""`bench transfer` on GPUs: NIXL through our interface and by hand, NCCL, and a plain copy, at real expert sizes."""

from __future__ import annotations

import json
import re
from typing import Any

from .children import measured, words

MODULE = "elasticfsm.runtime.bench.gpu.rows"
LANE = re.compile(r"(cuda_ipc|cuda_copy|tcp|cma|sysv|rc_mlx5)[^\s|]*")


def run(seconds: float = 100.0) -> dict[str, Any]:
    """Measure; GB/s by way and size, wrong rows, and what UCX said of its lanes."""
    results, logs, folder = measured(
        MODULE,
        lambda store, scratch: [["source", store, ""], ["reader", store, str(scratch / "1.json")]],
        seconds,
        UCX_PROTO_INFO="y",
    )
    with folder:
        if not results:
            raise words(logs)
        sizes = json.loads(results[0].read_bytes())
    return {
        "sizes": sizes,
        "lanes": _lanes(logs[1]),
        "ucx": [line for line in logs[1].splitlines() if "|" in line][:60],
        "wrong_rows": sum(each["wrong_rows"] for each in sizes),
    }


def _lanes(log: str) -> dict[str, int]:
    """How often UCX named each transport in its tables for reads of GPU memory."""
    found: dict[str, int] = {}
    reading = False
    for line in log.splitlines():
        if "remote memory read" in line or "get" in line.lower():
            reading = "cuda" in line
        if reading:
            for match in LANE.finditer(line):
                found[match.group(1)] = found.get(match.group(1), 0) + 1
    return found
