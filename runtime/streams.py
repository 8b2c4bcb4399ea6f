"""Streams of a GPU that are one's own.

torch hands out 32 streams of each priority in turn, so two that were asked for at different times may be the same: a
capture on what is secretly the main loop's stream breaks both, and a wait for a thread's own stream may be a wait for a
collective of NCCL, whose streams torch takes from the pool of normal priority. Ours are of high priority, and no two
owners get the same one.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

from elasticfsm.errors import GroupError

POOL = 32
_taken: dict[int, Any] = {}
_lock = threading.Lock()


def own_stream() -> Any:
    """A stream that no other caller has, for the life of the process. GroupError when none is left."""
    with _lock:
        for _ in range(POOL):
            stream: Any = torch.cuda.Stream(priority=-1)  # type: ignore[no-untyped-call]
            if stream.cuda_stream not in _taken:
                _taken[stream.cuda_stream] = stream
                return stream
    raise GroupError(f"all {POOL} streams of high priority have an owner: keep one per purpose instead of asking again")


class PerThread:
    """One stream for each thread that asks, made when it first does."""

    def __init__(self) -> None:
        self._mine = threading.local()

    def get(self) -> Any:
        """The calling thread's stream."""
        if not hasattr(self._mine, "stream"):
            self._mine.stream = own_stream()
        return self._mine.stream


class Once:
    """One stream for one purpose, made when it is first needed."""

    def __init__(self) -> None:
        self._stream: Any = None
        self._lock = threading.Lock()

    def get(self) -> Any:
        """The stream."""
        with self._lock:
            if self._stream is None:
                self._stream = own_stream()
            return self._stream
