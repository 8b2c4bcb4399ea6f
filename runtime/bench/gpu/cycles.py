"""Growing and shrinking again and again under load, with a trained model: tokens are checked, pauses counted."""

from __future__ import annotations

import re
import subprocess
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from ...demo import scenario as demo
from ...demo import tokens
from ...demo.scenario import Run, Scenario
from ...deployment import Deployment
from ...models import PSALTER
from . import growing, journal, stuck
from .machine import copy_gbs, need_gpu

MEMORY = "memory in MiB:"
WRONG = re.compile(r"CUDA error|NCCL error|terminated with exception|Traceback|Segmentation fault")
OPERATION_SECONDS = 45.0  # a change that takes longer is stuck


def run(
    path: tuple[int, ...],
    *,
    seconds: float = 2.0,
    clients: int = 8,
    gpus: int = 1,
    slots: int = 0,
    dtype: str = "bfloat16",
) -> dict[str, Any]:
    """Serve along a path of sizes; lost, wrong, pauses in steps, steps beside preparing, phases, memory."""
    need_gpu(gpus)
    demo.OPERATION_SECONDS = OPERATION_SECONDS
    with tempfile.TemporaryDirectory() as folder:
        scenario = Scenario(
            path=path,
            model=PSALTER,
            transfer="auto",
            seconds=seconds,
            clients=clients,
            device="cuda",
            dtype=dtype,  # type: ignore[arg-type]
            max_tokens=16,
            journal=folder,
            slots=slots,
        )
        going = Run(scenario, Console(quiet=True), live=False)
        memory, why = Memory(going, gpus), Why(going)
        report = going.execute()
        journals = Path(folder)
        return {
            "path": list(path),
            "dtype": dtype,
            "sent": report.sent,
            "lost": report.lost,
            "tokens": report.tokens,
            "wrong": len(report.wrong),
            "wrong_tokens": [msgspec.to_builtins(wrong) for wrong in report.wrong],
            "checked": report.checked,
            "completed": sum(each.phase == "completed" for each in report.operations),
            "operations": [msgspec.to_builtins(each) for each in report.operations],
            "gaps": [msgspec.to_builtins(each) for each in report.gaps],
            "bytes": report.bytes_moved,
            "refused": report.refused_collectives,
            "journal_errors": report.journal_errors[:5],
            "errors": report.errors[:5],
            "preparing": journal.preparing(journals, going.windows),
            "pauses": journal.pauses(journals, going.windows),
            "phases": journal.phases(journals, "e0")[:40],
            "growths": growing.growths(journals, going.windows),
            "copy_gbs": copy_gbs("cuda:0", f"cuda:{gpus - 1}"),
            "memory_said": memory_said(journals, "e0"),
            "says": _says(journals),
            "logs": wrong_lines(journals),
            "stuck": why.found,
            "notes": list(tokens.NOTES),
            "memory_mib": memory.seen,
        }


class Memory:
    """The memory of every GPU in use at the end of every steady window, as the driver counts it."""

    def __init__(self, run: Run, gpus: int) -> None:
        self.seen: list[tuple[int, list[int]]] = []
        self._gpus = gpus
        self._steady = run._steady
        run._steady = self._look  # type: ignore[method-assign]

    def _look(self, size: int) -> None:
        self._steady(size)
        self.seen.append((size, used_mib()[: self._gpus]))


class Why:
    """What a change that did not complete hung on."""

    def __init__(self, run: Run) -> None:
        self.found: dict[str, Any] = {}
        self._run = run
        self._scale = run._scale
        run._scale = self._look  # type: ignore[method-assign]

    def _look(self, deployment: Deployment, before: int, after: int) -> None:
        self._scale(deployment, before, after)
        if self._run.operations[-1].phase != "completed":
            self.found = stuck.describe(deployment)


def used_mib() -> list[int]:
    """MiB in use on every GPU."""
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    found = subprocess.run(query, capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split() if line.isdigit()]


def _says(journals: Path) -> list[str]:
    """What the first engine said about its transfers."""
    texts = [event.get("text", "") for event in journal.events(journals, "e0") if "text" in event]
    return [text for text in dict.fromkeys(texts) if text and not text.startswith(MEMORY)][:12]


def wrong_lines(journals: Path) -> dict[str, list[str]]:
    """What engines wrote of errors of the device, with the line after each."""
    found: dict[str, list[str]] = {}
    for path in sorted(journals.glob("*.log")):
        lines = path.read_text(errors="replace").splitlines()
        wrong = [f"{line[:600]} | {after[:200]}" for line, after in pairwise(lines) if WRONG.search(line)]
        if wrong:
            found[path.stem] = wrong[:6]
    return found


def memory_said(journals: Path, engine: str) -> list[str]:
    """What an engine said of its memory whenever it had captured a step."""
    texts = [event.get("text", "") for event in journal.events(journals, engine)]
    return [text.removeprefix(MEMORY).strip() for text in texts if text.startswith(MEMORY)]
