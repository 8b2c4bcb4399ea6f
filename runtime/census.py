"""What a process holds at this moment, to show that nothing is left behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .groups import Groups


@dataclass(frozen=True)
class Census:
    """Counts: groups that are alive, operations nobody waited for, what the reaper holds, descriptors, threads."""

    groups: int
    pending: int
    reaped: int
    descriptors: int
    threads: int


def census(groups: Groups) -> Census:
    """Count what this process holds now; descriptors and threads are the operating system's (Linux)."""
    alive = [group for generation in groups.alive() for group in generation.groups]
    return Census(
        groups=sum(group.alive for group in alive),
        pending=sum(group.pending for group in alive),
        reaped=len(groups.reaper.left()),
        descriptors=_entries("/proc/self/fd"),
        threads=_entries("/proc/self/task"),
    )


def _entries(directory: str) -> int:
    return sum(1 for _ in Path(directory).iterdir())
