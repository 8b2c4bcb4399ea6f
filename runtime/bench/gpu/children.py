"""Processes of a measurement: each with a seat on a GPU, all gone afterwards, their last words kept."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from elasticfsm.errors import ElasticError

from ...gpus import seats
from ...store import StoreServer
from .machine import need_gpu


def measured(
    module: str, arguments: Callable[[str, Path], Sequence[Sequence[str]]], seconds: float, **environment: str
) -> tuple[list[Path], list[str], Any]:
    """Run `python -m MODULE` with each of `arguments(store address, scratch)`; blocks at most so many seconds.

    Returns the scratch folder's result files (0.json, ...), the logs, and the folder itself, to be kept until they are
    read. ElasticError with the logs when a process left no result.
    """
    need_gpu()
    places = seats()
    store = StoreServer()
    folder = tempfile.TemporaryDirectory()
    scratch = Path(folder.name)
    processes: list[subprocess.Popen[bytes]] = []
    limit = time.monotonic() + seconds
    try:
        for number, each in enumerate(arguments(store.address, scratch)):
            with (scratch / f"{number}.log").open("wb") as log:
                settings = {**os.environ, **places.take(str(number)), "OMP_NUM_THREADS": "1", **environment}
                command = [sys.executable, "-m", module, *each]
                processes.append(subprocess.Popen(command, env=settings, stdout=log, stderr=log))
        for process in processes:
            process.wait(max(0.1, limit - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass  # what is missing is said below
    finally:
        for process in processes:
            process.kill()
            process.wait()
        store.close()
    logs = [(scratch / f"{number}.log").read_text(errors="replace") for number in range(len(processes))]
    return sorted(scratch.glob("*.json")), logs, folder


def words(logs: Sequence[str]) -> ElasticError:
    """The error of a measurement that left no result."""
    return ElasticError("a process of the measurement failed: " + "\n---\n".join(log[-1500:] for log in logs))
