"""Which GPU each engine process sits on, and the environment it needs there."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping

import torch

from elasticfsm.errors import RequestRefused

from .nccl import ENVIRONMENT

LIBRARY = "ELASTICFSM_NCCL"  # path of a libnccl.so.2 to use instead of torch's: several engines on one GPU need 2.32


class Seats:
    """The GPUs of this machine; engines take the one with fewest engines, lowest number first. Any thread.

    A process sees all GPUs, its own as number 0: peers' memory can be mapped, and nobody has to set a device.
    """

    def __init__(self, gpus: int) -> None:
        self._gpus = gpus
        self._taken: dict[str, int] = {}
        self._lock = threading.Lock()

    def take(self, engine: str) -> Mapping[str, str]:
        """Give an engine a seat; returns what its environment must say. What the user has set stays."""
        with self._lock:
            counts = [list(self._taken.values()).count(gpu) for gpu in range(self._gpus)]
            own = counts.index(min(counts))
            self._taken[engine] = own
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        names = visible if visible != [""] else [str(gpu) for gpu in range(self._gpus)]
        order = [names[(own + step) % self._gpus] for step in range(self._gpus)]
        given = {name: value for name, value in ENVIRONMENT.items() if name not in os.environ}
        if os.environ.get(LIBRARY):
            given["LD_PRELOAD"] = os.environ[LIBRARY]
        return {**given, "CUDA_VISIBLE_DEVICES": ",".join(order)}

    def leave(self, engine: str) -> None:
        """Free an engine's seat; harmless when it has none."""
        with self._lock:
            self._taken.pop(engine, None)


def seats() -> Seats:
    """The seats of this machine; raises RequestRefused when it has no GPU that torch can use."""
    count = torch.cuda.device_count()
    if not count:
        raise RequestRefused(f"--device cuda: torch {torch.__version__} sees no GPU here; use --device cpu")
    return Seats(count)
