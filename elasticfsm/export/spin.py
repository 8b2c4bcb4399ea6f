"""SPIN as an oracle: a protocol is exported to Promela, compiled and searched, and every property gets a verdict."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from elasticfsm.compile import Program
from elasticfsm.errors import SpecError
from elasticfsm.export.promela import promela

# Each state once and whole: no reduction, no hash compaction. COLLAPSE stores parts of a state apart and loses nothin
SWITCHES = ("-O1", "-w", "-DSAFETY", "-DNOREDUCE", "-DNOBOUNDCHECK", "-DCOLLAPSE")
DEPTH = 2_000_000
VERIFIER = ("stdbuf", "-oL", "./pan")  # line by line, so that one that is ended has told how far it came
JUDGED_BY_ASSERTION = (
    "agreement",
    "collective_order",
    "membership",
    "contracts",
    "no_use_after_destroy",
    "no_transfer_at_switch",
    "placement",
    "coverage",
    "requests_kept",
)


@dataclass
class Verdict:
    """What SPIN found. `counted`: the first run saw every state; `complete`: both did. CPU `seconds` by stage."""

    states: int = 0
    counted: bool = False
    complete: bool = False
    refuted: set[str] = field(default_factory=set)
    seconds: dict[str, float] = field(default_factory=dict)
    megabytes: float = 0.0


def available() -> bool:
    """Whether SPIN and a C compiler are installed."""
    return shutil.which("spin") is not None and shutil.which("gcc") is not None


def judge(
    program: Program, sizes: dict[str, int], cancel: bool, folder: Path, megabytes: int = 4096, limit_s: float = 120
) -> Verdict:
    """Builds a verifier in `folder`, runs it twice, and tells the verdicts.

    The first run stores every state once and judges what is asserted; the second one, in which the environment may fall
    silent, looks for deadlocks. Raises `SpecError` when the program has no Promela or a stage fails.
    """
    found = Verdict()
    began = time.process_time()
    (folder / "model.pml").write_text(promela(program, sizes, cancel))
    found.seconds["export"] = time.process_time() - began
    _stage(found, "spin", ["spin", "-a", "-DTALLY", "model.pml"], folder)
    _stage(found, "gcc", ["gcc", *SWITCHES, f"-DMEMLIM={megabytes}", "-o", "pan", "pan.c"], folder)
    text = _stage(found, "run", [*VERIFIER, "-E", f"-m{DEPTH}"], folder, limit_s)
    found.states, found.counted = _stored(text), _finished(text)
    found.complete = found.counted
    found.megabytes = float(_number(r"(\d+)\.\d+\s+total actual memory", text))
    found.refuted = set(re.findall(r"^refuted: (\w+)", text, re.MULTILINE))
    text = _stage(found, "silent run", [*VERIFIER, f"-m{DEPTH}"], folder, limit_s * 2, {"SILENCE": "1"})
    if "invalid end state" in re.sub(r"invalid end states\s+[-+]", "", text):
        found.refuted.add("no_deadlock")
    elif not _finished(text):
        found.complete = False
    return found


def _stage(
    found: Verdict,
    name: str,
    command: list[str],
    folder: Path,
    limit_s: float = 600,
    more: dict[str, str] | None = None,
) -> str:
    """Runs one stage and returns what it printed; one that exceeds its CPU seconds is ended by the kernel."""

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), int(limit_s) + 1))

    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        command,
        check=False,
        cwd=folder,
        env={**os.environ, **(more or {})},
        preexec_fn=limited,
        capture_output=True,
        text=True,
    )
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    found.seconds[name] = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
    text = done.stdout + done.stderr
    if command[0] != VERIFIER[0] and (done.returncode or (command[0] == "spin" and "Error:" in done.stdout)):
        raise SpecError(f"{' '.join(command[:2])} failed on {folder / 'model.pml'}:\n{text[-2000:]}")
    return text if done.returncode >= 0 else text + f"\nstopped by signal {-done.returncode}\n"


def _number(pattern: str, text: str) -> int:
    match = re.search(pattern, text)
    return int(match.group(1)) if match else 0


def _stored(text: str) -> int:
    """How many states were stored; of a search that was cut short, how many it last told."""
    told = re.findall(r"States=\s+([\d.e+]+)", text)
    return _number(r"(\d+) states, stored", text) or (int(float(told[-1])) if told else 0)


def _finished(text: str) -> bool:
    """Whether the search ended by itself, within its memory, depth and time."""
    cut = ("search depth too small", "out of memory", "memory bound", "Search not completed", "stopped")
    return "states, stored" in text and not any(word in text for word in cut)
