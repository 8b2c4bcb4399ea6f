"""Why a deployment does not get on: where every thread of every engine stands, and what the journals say of it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from elasticfsm.errors import ElasticError
from elasticfsm.explain import explain, text

from ...deployment import Deployment

STACKS = signal.SIGUSR1  # an engine on a GPU answers it with the stacks of its threads, in its log
WRITING = 1.5  # seconds that it gets for that
QUERY = "index,utilization.gpu,memory.used"


def describe(deployment: Deployment) -> dict[str, Any]:
    """Everything that can be had from outside; blocks for seconds, changes nothing."""
    pids = deployment.status().pids
    before = {engine: _log(deployment.journals, engine) for engine in pids}
    for pid in pids.values():
        with suppress(ProcessLookupError):
            os.kill(pid, STACKS)
    time.sleep(WRITING)
    logs = {engine: _log(deployment.journals, engine) for engine in pids}
    return {
        "stacks": {engine: log[len(before[engine]) :][-6000:] for engine, log in logs.items()},
        "words": {engine: before[engine][-1500:] for engine in pids},
        "gpus": _gpus(),
        "explain": explained(deployment.journals),
    }


def explained(journals: Path) -> str:
    """What `elasticfsm explain` says of the journals, or why it says nothing."""
    try:
        return text(explain(journals))[-6000:]
    except (ElasticError, OSError, ValueError) as error:
        return f"nothing to be had from the journals: {error}"


def _log(journals: Path, engine: str) -> str:
    with suppress(OSError):
        return (journals / f"{engine}.log").read_text(errors="replace")
    return ""


def _gpus() -> list[str]:
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"]
    with suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout.splitlines()
    return []
