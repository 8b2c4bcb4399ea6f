"""Policies side by side: run time, balance, rows moved, and how far each is from what is possible.

Times are CPU time of the one thread that computes, so that other work on the machine does not count.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from elasticfsm.errors import RequestRefused

from ..experts.placement import EMPTY, IntArray
from ..experts.policy.balanced import balanced
from ..experts.policy.bounded import bounded
from ..experts.policy.bounds import Verdict, judge
from ..experts.policy.settings import Policy
from ..experts.policy.tally import Bools, held, in_place
from .eplb_cases import CASES, LITE, Case

REPEATS = 5
VENV = ".venv-eplb"
Loads = npt.NDArray[np.int64]

# What `bounded` must reach: rows moved as a multiple of the bound, balance as a fraction of it.
MOVED_BARS = {"grow": 1.15, "shrink": 1.3, "loss": 4.0}
BALANCE_BAR, DRIFT_BAR = 0.95, 0.96


class Figures(msgspec.Struct, kw_only=True):
    """One policy in one case; `ms` is a median, `rows` are those that cross ranks.

    `of_balance` is a fraction of the best balance, `of_rows` a multiple of the fewest rows (0: none have to move),
    `of_slots` a fraction of all slots, `relabelled` the rows left when ranks exchange their contents for the best.
    """

    policy: str
    ms: float
    balance: float
    of_balance: float
    rows: int
    gigabytes: float
    of_rows: float
    of_slots: float
    relabelled: int
    received_by_one: int


class CaseReport(msgspec.Struct, kw_only=True):
    """One case: balance before any move, the bounds, all policies; `speed_counts`: large enough for times to matter."""

    case: str
    kind: str
    speed_counts: bool
    stay: float
    balance_bound: float
    rows_bound: int
    policies: list[Figures]

    def figures(self, policy: str) -> Figures | None:
        """The figures of one policy, if it ran."""
        return next((each for each in self.policies if each.policy == policy), None)


class EplbReport(msgspec.Struct, kw_only=True):
    """The whole run; `missed` are the bars that `bounded` does not reach."""

    machine: str
    numpy: str
    seed: int
    repeats: int
    settings: Policy
    cases: list[CaseReport]
    missed: list[str]


class Reference:
    """Other projects' policies in a process of their own; use as a context. Calls block for one computation."""

    def __init__(self, venv: Path) -> None:
        python, files = venv / "bin" / "python", venv / "reference"
        if not python.is_file() or not files.is_dir():
            raise RequestRefused(f"{venv} does not hold the reference policies; make it with tools/eplb-venv")
        self._scratch = tempfile.TemporaryDirectory(prefix="elasticfsm-eplb-")
        program = Path(__file__).parent / "eplb_reference.py"
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [str(python), str(program), str(files)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | threads,
        )

    def call(self, which: str, rows: IntArray, loads: Loads, usable: Bools) -> tuple[float, IntArray]:
        """Return (milliseconds of one call, contents in the shape of `rows`)."""
        folder, ranks = Path(self._scratch.name), int(usable.sum())
        request: dict[str, Any] = {"which": which, "ranks": ranks, "slots": rows.shape[2], "old": ""}
        request |= {"loads": str(folder / "loads.npy"), "out": str(folder / "out.npy")}
        np.save(request["loads"], loads)
        if which == "vllm" and usable.all() and (rows != EMPTY).all():
            request["old"] = str(folder / "old.npy")
            np.save(request["old"], rows.reshape(len(rows), -1))
        answer = self._ask(request)
        target = np.full_like(rows, EMPTY)
        target[:, usable] = np.load(request["out"]).reshape(len(rows), ranks, -1)
        return float(answer["ms"]), target

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is not None and stdout is not None and self._process.poll() is None:
            stdin.write(json.dumps(request) + "\n")
            stdin.flush()
            if line := stdout.readline():
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RequestRefused("the process with the reference policies ended; its messages are above")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._scratch.cleanup()


Call = Callable[[IntArray, Loads, Bools], tuple[float, IntArray]]


def run(
    reference: Reference | None = None,
    cases: Iterable[Case] = CASES,
    seed: int = 0,
    policy: Policy | None = None,
    repeats: int = REPEATS,
) -> EplbReport:
    """Measure all policies in all cases, in turns, on one thread; blocks for about a minute with the reference."""
    settings = policy or Policy()

    def least(rows: IntArray, loads: Loads, usable: Bools) -> IntArray:
        return bounded(rows, loads, usable, settings)

    calls: dict[str, Call] = {"bounded": _timed(least), "balanced": _timed(_balanced)}
    if reference is not None:
        for which in ("deepseek", "vllm"):
            calls[which] = _from(reference, which)
    reports = [_measure(case, calls, seed, repeats) for case in cases]
    return EplbReport(
        machine=_processor(),
        numpy=np.__version__,
        seed=seed,
        repeats=repeats,
        settings=settings,
        cases=reports,
        missed=[text for each in reports for text in missed(each)],
    )


def missed(report: CaseReport) -> list[str]:
    """Say which bars `bounded` misses in a case."""
    mine, theirs = report.figures("bounded"), report.figures("deepseek")
    if mine is None:
        return []
    most = MOVED_BARS.get(report.kind)
    least = DRIFT_BAR if report.kind == "drift" else BALANCE_BAR
    texts = []
    if most is not None and mine.of_rows > most:
        texts.append(f"{report.case}: {mine.of_rows:.2f} x the least rows, expected {most}")
    if (report.kind != "drift" or "drift 0.3" in report.case) and mine.of_balance < least:
        texts.append(f"{report.case}: {mine.of_balance:.3f} of the best balance, expected {least}")
    if theirs is not None and report.speed_counts and mine.ms > theirs.ms:
        texts.append(f"{report.case}: {mine.ms:.0f} ms, DeepSeek's takes {theirs.ms:.0f} ms")
    return texts


def _measure(case: Case, calls: dict[str, Call], seed: int, repeats: int) -> CaseReport:
    setting = case.setting(seed)
    rows, loads, usable = setting
    times: dict[str, list[float]] = {name: [] for name in calls}
    targets: dict[str, IntArray] = {}
    for _ in range(repeats):
        for name, call in calls.items():
            elapsed, targets[name] = call(*setting)
            times[name].append(elapsed)
    verdicts = {name: judge(rows, target, loads, usable) for name, target in targets.items()}
    stay = judge(rows, rows, loads, usable, relabel=False)
    return CaseReport(
        case=case.name,
        kind=case.kind,
        speed_counts=case.model is not LITE,
        stay=stay.balance if case.kind == "drift" else 0.0,
        balance_bound=stay.balance_bound,
        rows_bound=stay.moved_bound,
        policies=[_figures(name, case, statistics.median(times[name]), verdicts[name]) for name in calls],
    )


def _figures(name: str, case: Case, ms: float, verdict: Verdict) -> Figures:
    return Figures(
        policy=name,
        ms=ms,
        balance=verdict.balance,
        of_balance=verdict.of_balance,
        rows=verdict.moved,
        gigabytes=verdict.moved * case.model.expert_bytes / 1e9,
        of_rows=verdict.moved / verdict.moved_bound if verdict.moved_bound else 0.0,
        of_slots=verdict.moved / (case.model.layers * case.after * case.slots),
        relabelled=verdict.relabelled,
        received_by_one=verdict.received,
    )


def _balanced(rows: IntArray, loads: Loads, usable: Bools) -> IntArray:
    target = np.full_like(rows, EMPTY)
    target[:, usable] = balanced(loads, int(usable.sum()), rows.shape[2])
    return in_place(rows, held(target, loads.shape[1]))


def _timed(compute: Callable[[IntArray, Loads, Bools], IntArray]) -> Call:
    def call(rows: IntArray, loads: Loads, usable: Bools) -> tuple[float, IntArray]:
        begin = time.thread_time()
        target = compute(rows, loads, usable)
        return (time.thread_time() - begin) * 1e3, target

    return call


def _from(reference: Reference, which: str) -> Call:
    def call(rows: IntArray, loads: Loads, usable: Bools) -> tuple[float, IntArray]:
        return reference.call(which, rows, loads, usable)

    return call


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0]} x {len(names)}" if names else platform.processor() or platform.machine()
