"""What an observed step costs an engine: monitor, journal, imports, and vLLM's own idle poll beside them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from elasticfsm import journal, monitor, protocol
from elasticfsm.embed import Machine, Monitor, Op, Program, Recorder
from elasticfsm.errors import ElasticError

TABLE = "vllm-0.33/scale_up"
SYNC = ("all_reduce", "dp.active", "sum")  # the step sync: the only event of an engine that does not rescale
HEARD = frozenset({"answer work", "answer empty", "agreed pause", "received pause"})
CALLS = 20_000
REPEATS = 7
PENDING = 250  # exchanges, until the journal is written: some dozens of steps


class Figure(msgspec.Struct, frozen=True):
    """One figure with its unit; `bar` is what it has to stay below, 0 if there is none."""

    name: str
    value: float
    unit: str
    bar: float = 0

    @property
    def missed(self) -> bool:
        """Whether it is above its bar."""
        return bool(self.bar) and self.value >= self.bar


def run(venv: Path | None = None) -> list[Figure]:
    """All figures; those of vLLM only with the environment that `tools/vllm-venv` made. Takes seconds, blocks."""
    found = [Figure("monitor, per event", _monitor(None), "us", 0.5)]
    with tempfile.TemporaryDirectory() as directory:
        recorder = Recorder(directory, "engine0")
        found.append(Figure("monitor and journal kept in memory, per event", _monitor(recorder.put), "us"))
        found.append(Figure("journal written beside the work, per line", _journal(Path(directory)), "us"))
        own = _own_monitor(Path(directory))
        found.append(Figure("an engine's own monitor, per event, kept and not written", own, "us", 1))
    found.append(Figure("machine of somebody else's engine, idle progress()", _progress(), "us", 1))
    found.append(Figure("import and register, off", _import("off"), "ms", 50))
    found.append(Figure("import and register, observe, no elastic engine", _import("observe"), "ms", 50))
    found.append(Figure("import of elasticfsm.embed", _fresh("import elasticfsm.embed"), "ms"))
    return found + (_vllm(venv) if venv is not None else [])


def per_call(call: Callable[[], object], calls: int = CALLS, repeats: int = REPEATS) -> float:
    """Microseconds of this thread's CPU time per call, the median of some repeats."""
    times = []
    for _ in range(repeats):
        began = time.thread_time()
        for _ in range(calls):
            call()
        times.append((time.thread_time() - began) / calls * 1e6)
    return statistics.median(times)


def _monitor(sink: Callable[..., None] | None) -> float:
    """The mean over the three calls of a step sync: before, after, and its answer."""
    watch = Monitor(Program.load(TABLE), "existing", "core", 0, Op("bench", 2, 3), hears=HEARD, sink=sink)

    def sync() -> None:
        watch.before(*SYNC)
        watch.after(*SYNC)
        watch.told("answer work")

    return per_call(sync) / 3


class _Still:
    """Hands of a host that has nothing to do."""

    def start(self, step: str, op: Op) -> _Still:
        return self

    def done(self) -> bool:
        return True

    def result(self) -> None:
        return None


def _progress() -> float:
    """A prepared engine that waits for the decision: the state in which a host polls without end."""
    machine = Machine(Program.load(TABLE), "existing", _Still(), Op("bench", 2, 3), clock=time.monotonic)
    while machine.progress():
        pass
    return per_call(machine.progress)


def _own_monitor(directory: Path) -> float:
    """The mean over the two calls of a collective in a forward step; the journal's thread is not counted."""
    kept = journal.Journal(directory, "engine2", "bench")
    watch = monitor.Monitor("engine0", kept)
    watch.begin_step("serving.engine", "stepping", protocol.Step("step.forward", "active"))

    def exchange() -> None:
        for op in ("all_gather", "reduce_scatter"):
            watch.before("ep.active", op)
            watch.after("ep.active", op)

    times = []
    for _ in range(REPEATS):
        times.append(per_call(exchange, PENDING, 1) / 4)
        kept.flush()  # as its thread does, beside the work
    kept.close()
    return statistics.median(times)


def _journal(directory: Path) -> float:
    recorder = Recorder(directory, "engine1")
    watch = Monitor(Program.load(TABLE), "existing", "core", 0, Op("bench", 2, 3), hears=HEARD, sink=recorder.put)
    for _ in range(1000):  # fewer than it keeps
        watch.before(*SYNC)
        watch.after(*SYNC)
        watch.told("answer work")
    began = time.thread_time()
    recorder.flush()
    seconds = time.thread_time() - began
    lines = recorder.path.read_text().count("\n")
    recorder.close()
    return seconds / lines * 1e6


def _import(mode: str) -> float:
    return _fresh("import elasticfsm.integrations.vllm as plugin; plugin.register()", ELASTICFSM_VLLM=mode)


def _fresh(code: str, **environment: str) -> float:
    """Milliseconds of CPU time that this code takes in a fresh interpreter, the median of some."""
    timed = f"import time; began = time.process_time(); {code}; print((time.process_time() - began) * 1000)"
    return statistics.median(float(_python(Path(sys.executable), ["-c", timed], **environment)) for _ in range(5))


def _vllm(venv: Path) -> list[Figure]:
    python = venv / "bin" / "python"
    if not python.exists():
        raise ElasticError(f"{venv}: no vLLM here; make it with tools/vllm-venv {venv}")
    found = {}
    for mode in ("off", "observe"):
        said = _python(python, ["-m", "elasticfsm.bench.vllm_idle"], ELASTICFSM_VLLM=mode).splitlines()
        found[mode] = json.loads(said[-1])
    if not found["observe"]["observed"]:
        raise ElasticError(
            f"{venv}: the observer did not act there; reinstall it: rm {venv}/installed, tools/vllm-venv"
        )
    release = found["off"]["version"]
    return [
        Figure(f"vLLM {release}, idle progress()", found["off"]["progress"], "us"),
        Figure(f"vLLM {release}, idle progress(), observed", found["observe"]["progress"], "us"),
        Figure(f"vLLM {release}, import of its elastic_state", found["off"]["import"], "ms"),
    ]


def _python(python: Path, arguments: list[str], **environment: str) -> str:
    ran = subprocess.run(
        [str(python), *arguments], capture_output=True, text=True, env={**os.environ, **environment}, check=False
    )
    if ran.returncode:
        raise ElasticError(f"{python} {' '.join(arguments)} failed: {ran.stderr[-500:]}")
    return ran.stdout
