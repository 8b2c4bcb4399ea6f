"""What the figures were measured on, and the two ceilings: a copy within a GPU, a copy between two."""

from __future__ import annotations

import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from typing import Any

import torch

from elasticfsm.errors import RequestRefused

GIB = 1 << 30


def need_gpu(count: int = 1) -> None:
    """Raise RequestRefused unless torch sees so many GPUs."""
    found = torch.cuda.device_count()
    if found < count:
        raise RequestRefused(f"this measurement needs {count} GPU(s), torch {torch.__version__} sees {found} here")


def event_ms(call: Callable[[], object], repeats: int = 10, warm: int = 3) -> float:
    """Median milliseconds of CALL on the current stream, by events."""
    times = []
    for index in range(warm + repeats):
        begin: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        call()
        end.record()
        end.synchronize()
        if index >= warm:
            times.append(float(begin.elapsed_time(end)))
    return statistics.median(times)


def graph_ms(call: Callable[[], object]) -> float:
    """Median milliseconds of CALL replayed from a graph: without the time to launch its kernels."""
    side: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(side):
        call()
        side.synchronize()
        graph.capture_begin()
        call()
        graph.capture_end()
        return event_ms(graph.replay)


def copy_gbs(source: str = "cuda:0", target: str = "cuda:0", nbytes: int = GIB) -> float:
    """GB/s of a plain device copy: bytes that arrive, over time."""
    try:
        return _copy_gbs(source, target, nbytes)
    finally:
        torch.cuda.empty_cache()  # what this process holds is not the engines'


def _copy_gbs(source: str, target: str, nbytes: int) -> float:
    one = torch.empty(nbytes, dtype=torch.uint8, device=source).random_()
    other = torch.empty(nbytes, dtype=torch.uint8, device=target)
    with torch.cuda.device(source):
        return nbytes / event_ms(lambda: other.copy_(one)) / 1e6


def describe() -> dict[str, Any]:
    """Hardware and versions."""
    need_gpu()
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True, check=False)
    return {
        "date": time.strftime("%Y-%m-%d"),
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "driver": (driver.stdout.splitlines() or ["?"])[0],
        "torch": str(torch.__version__),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
        "python": platform.python_version(),
        "kernel": platform.release(),
    }


def quantile(values: list[float], share: float) -> float:
    """The value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
