"""`bench eplb-gpu`: step times with experts on the move beside serving, against the same load with none moving."""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from ...demo.workload import Workload
from ...deployment import Deployment, Options
from ...models import PSALTER
from . import journal
from .machine import need_gpu, quantile

INTERVAL = 25  # steps between two plans


def run(size: int = 2, seconds: float = 10.0, transfer: str = "auto") -> dict[str, Any]:
    """Serve with EPLB off, async, and off again; ratios against the mean of the two without."""
    need_gpu()
    off, on, again = (_serve(size, seconds, pace, transfer) for pace in ("off", "async", "off"))
    unit = statistics.median([*off["steps"], *again["steps"]])
    quiet = quantile([*off["steps"], *again["steps"]], 0.99)
    return {
        "size": size,
        "off_ms": unit,
        "off_p99": quiet / unit,
        "off_again": statistics.median(again["steps"]) / statistics.median(off["steps"]),
        "on_p50": statistics.median(on["steps"]) / unit,
        "on_p99": quantile(on["steps"], 0.99) / unit,
        "on_max": max(on["steps"]) / unit,
        "steps": len(on["steps"]),
        "layers_moved": on["layers"],
        "rebalances": on["rebalances"],
        "bytes": on["bytes"],
        "says": on["says"],
    }


def _serve(size: int, seconds: float, pace: str, transfer: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        options = Options(
            device="cuda",
            journal=folder,
            eplb=pace,  # type: ignore[arg-type]
            eplb_interval=INTERVAL,
            eplb_window=INTERVAL,
            transfer=transfer,  # type: ignore[arg-type]
        )
        with Deployment.start(PSALTER, size, options) as deployment:
            workload = Workload(deployment.submit, 8, deployment.config.max_position_embeddings, 256)
            workload.start()
            time.sleep(3.0)
            begin = time.monotonic()
            stopping = threading.Event()
            thread = threading.Thread(target=_swing, args=(workload, stopping), daemon=True)
            thread.start()
            time.sleep(seconds)
            end = time.monotonic()
            stopping.set()
            thread.join()
            workload.stop()
            time.sleep(0.5)  # the last counters
            counters = dict(deployment.counters)
        found = Path(folder)
        texts = [event["text"] for event in journal.events(found, "e0") if "text" in event]
        return {
            "steps": journal.within(journal.steps(found), begin, end),
            "layers": max((each.get("layers_moved", 0) for each in counters.values()), default=0),
            "rebalances": max((each.get("rebalances", 0) for each in counters.values()), default=0),
            "bytes": {
                name: sum(each.get(name, 0) for each in counters.values())
                for each in counters.values()
                for name in each
                if name.startswith("bytes_")
            },
            "says": list(dict.fromkeys(texts))[:6],
        }


def _swing(workload: Workload, stopping: threading.Event) -> None:
    """Change what requests are about, so that other experts are busy and something has to move."""
    share = 0.0
    while not stopping.wait(0.7):
        share = 1.0 - share
        workload.shift(share)
