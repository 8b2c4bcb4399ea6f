"""What this process and its engines hold (descriptors, threads, shared memory), to show that nothing is left."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import psutil


class Holdings(NamedTuple):
    """Of one process: descriptors, threads, resident memory in MiB."""

    descriptors: int
    threads: int
    memory: float


def of_process(pid: int = 0) -> Holdings:
    """What a process holds now; zeros when it is gone."""
    try:
        process = psutil.Process(pid or os.getpid())
        with process.oneshot():
            return Holdings(process.num_fds(), process.num_threads(), process.memory_info().rss / 2**20)
    except psutil.Error:
        return Holdings(0, 0, 0.0)


def descriptors() -> list[str]:
    """What every open descriptor of this process leads to."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(f"{each.name} {each.readlink()}")
        except OSError:  # the directory's own, closed meanwhile
            continue
    return found


def shared_memory() -> set[str]:
    """Names of shared memory on this machine that belong to this user."""
    mine = os.getuid()
    found = set()
    for each in Path("/dev/shm").iterdir():
        try:
            if each.stat().st_uid == mine:
                found.add(each.name)
        except OSError:  # gone meanwhile
            continue
    return found


def engines_of(parent: int) -> set[int]:
    """Processes whose parent is this one; ended but not yet reaped ones do not count."""
    found = set()
    for process in psutil.process_iter(["ppid", "status"]):
        if process.info["ppid"] == parent and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.add(process.pid)
    return found
