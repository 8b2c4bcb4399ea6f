"""One demo run: serve, change size along a path while requests run, and measure what the streams saw of it."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console

from elasticfsm.errors import ElasticError, RequestRefused

from .. import wire
from ..deployment import Deployment, Options
from ..engine.config import ModelConfig
from ..experts.placement import refuse_size
from ..experts.policy.settings import Kind, Policy
from ..operation import Operation
from ..router import Stream
from ..transport import SocketDirectory
from . import layers as moved_layers
from . import tokens
from .dry_run import compare_pauses, foretell
from .gaps import Window, measure
from .live import View
from .report import OperationReport, Report
from .workload import Workload

OPERATION_SECONDS = 150.0
SETTLE = 4.0  # seconds after an operation that count as "after": experts still move


class Scenario(msgspec.Struct, kw_only=True, frozen=True):
    """What to run: sizes in order, seconds of steady serving at each, and how."""

    path: tuple[int, ...]
    model: Path
    transfer: wire.Transfer = "auto"
    eplb: wire.Pace = "async"
    eplb_interval: int = 200
    eplb_window: int = 200
    eplb_step_bytes: int = 0
    policy: Kind = "bounded"
    verify_experts: bool = False
    seconds: float = 8.0
    clients: int = 12
    slots: int = 0
    largest: int = 8
    journal: str = ""
    faults: tuple[str, ...] = ()
    check: bool = True
    device: wire.Device = "cpu"
    dtype: wire.Dtype = "bfloat16"
    max_tokens: int = 64

    @property
    def numbers(self) -> str:
        """What the engines compute in, as the token check names it."""
        return "cpu" if self.device == "cpu" else f"cuda {self.dtype}"

    def refuse(self) -> ModelConfig:
        """Return the model's config, or raise ElasticError for what cannot run: nothing was started then."""
        config = ModelConfig.read(self.model)
        if not self.path:
            raise RequestRefused("the path has no size; give one such as 2,4,2")
        for size in self.path:
            refuse_size(size, config.num_experts, self.chosen_slots(config), self.largest)
        return config

    def chosen_slots(self, config: ModelConfig) -> int:
        """Slots per engine: given, or enough at the smallest size and two more, never more than there are experts."""
        share = -(-config.num_experts // max(min(self.path), 1))
        return self.slots or min(config.num_experts, share + 2)


class Seen(msgspec.Struct, kw_only=True, frozen=True):
    """What the deployment had counted when it was closed; `counters` by engine id."""

    bytes_moved: dict[str, int]
    counters: dict[str, dict[str, int]]
    refused: int
    dropped: dict[str, int]
    failed: list[str]

    def total(self, name: str) -> int:
        """What all engines counted under a name."""
        return sum(each.get(name, 0) for each in self.counters.values())


class Run:
    """The run of a scenario, step by step; `headline` says at any time where it stands."""

    def __init__(self, scenario: Scenario, console: Console, live: bool) -> None:
        self.scenario = scenario
        self.config = scenario.refuse()
        self.windows: list[Window] = []
        self.operations: list[OperationReport] = []
        self._console = console
        self._live = live
        self._operation: Operation | None = None
        self._streams: Sequence[Stream] = ()
        self._saying = "starting"

    def headline(self) -> str:
        """One line for the view."""
        operation = self._operation
        if operation is None or operation.ended:
            return self._saying
        return f"{self._saying}: {operation.record.phase} ({operation.record.detail})"

    def execute(self) -> Report:
        """Run everything; blocks. Whatever happens, no process is left."""
        begun, scenario = time.monotonic(), self.scenario
        with contextlib.closing(SocketDirectory()) as run:  # engines remove it if this process is killed
            scratch = run.path
            journal = scenario.journal or str(scratch / "journal")
            self._console.print(f"starting {scenario.path[0]} engines with {scenario.model} ...", highlight=False)
            with Deployment.start(scenario.model, scenario.path[0], self._options(journal, scratch)) as deployment:
                workload = self._drive(deployment)
                seen = Seen(
                    bytes_moved=_moved(deployment),
                    counters=dict(deployment.counters),
                    refused=sum(deployment.violations.values()),
                    dropped=deployment.status().dropped,
                    failed=[deployment.failed] if deployment.failed else [],
                )
            streams = list(workload.streams)
            wrong, checked, errors = self._check(streams, scratch)
            journal_errors = self._validate(Path(journal))
            layers = moved_layers.count(Path(journal), self.windows)
        gaps = measure(streams, self.windows)
        compare_pauses([each.forecast for each in self.operations], gaps)
        failures = [*seen.failed, *(each.error for each in self.operations if each.error), *workload.errors, *errors]
        return self._report(
            seen,
            streams,
            seconds=time.monotonic() - begun,
            wrong=wrong,
            checked=checked,
            gaps=gaps,
            layers_moved=layers,
            journal_errors=journal_errors,
            errors=failures,
        )

    def _options(self, journal: str, scratch: Path) -> Options:
        """How the deployment of this scenario runs."""
        scenario = self.scenario
        return Options(
            slots=scenario.chosen_slots(self.config),
            transfer=scenario.transfer,
            eplb=scenario.eplb,
            eplb_interval=scenario.eplb_interval,
            eplb_window=scenario.eplb_window,
            eplb_step_bytes=scenario.eplb_step_bytes,
            policy=Policy(kind=scenario.policy),
            verify_experts=scenario.verify_experts,
            largest=scenario.largest,
            journal=journal,
            directory=str(scratch),
            faults=scenario.faults,
            device=scenario.device,
            dtype=scenario.dtype,
            max_tokens=scenario.max_tokens,
        )

    def _report(self, seen: Seen, streams: Sequence[Stream], **found: Any) -> Report:
        """What was seen of requests and engines, and what was `found` afterwards."""
        scenario = self.scenario
        finished = [stream for stream in streams if stream.outcome == "finished"]
        return Report(
            path=list(scenario.path),
            model=str(scenario.model),
            transfer=scenario.transfer,
            sent=len(streams),
            finished=len(finished),
            lost=len(streams) - len(finished),
            handed_over=sum(stream.handovers for stream in streams),
            tokens=sum(len(stream.tokens) for stream in streams),
            operations=self.operations,
            bytes_moved=seen.bytes_moved,
            eplb=f"{scenario.eplb}, interval {scenario.eplb_interval}, window {scenario.eplb_window}",
            rebalances_broken=seen.total("rebalances_broken"),
            experts_checked=seen.total("experts_checked"),
            experts_wrong=seen.total("experts_wrong"),
            refused_collectives=seen.refused,
            dropped=seen.dropped,
            journal=scenario.journal or "not kept",
            **found,
        )

    # -- serving and scaling -----------------------------------------------------------------------------------

    def _drive(self, deployment: Deployment) -> Workload:
        scenario, path = self.scenario, self.scenario.path
        limit = self.config.max_position_embeddings
        workload = Workload(deployment.submit, scenario.clients, limit, self.config.vocab_size)
        self._streams = workload.streams
        view = View(deployment, self._console, self._live, self.headline)
        try:
            workload.start()
            self._steady(path[0])
            for index, (before, after) in enumerate(itertools.pairwise(path)):
                if deployment.failed:
                    break
                workload.shift((index + 1) / max(1, len(path) - 1))  # from scripture to code
                self._scale(deployment, before, after)
                if deployment.failed or self.operations[-1].phase != "completed":
                    break
                self._steady(after)
            self._saying = "finishing what runs"
            workload.stop()
        finally:
            view.close()
        return workload

    def _steady(self, size: int) -> None:
        self._saying = f"{size} engines serve"
        begin = time.monotonic()
        time.sleep(self.scenario.seconds)
        self.windows.append(Window(name=f"steady {size}", begin=begin, end=time.monotonic(), size=size))

    def _scale(self, deployment: Deployment, before: int, after: int) -> None:
        change = f"{before} -> {after}"
        self._saying = change
        forecast = foretell(deployment, self._streams, after)
        moved = sum(_moved(deployment).values())
        begin = time.monotonic()
        operation = self._operation = deployment.scale(after)
        try:
            operation.wait(OPERATION_SECONDS)
        except ElasticError as error:
            operation.failed(str(error))
        done = time.monotonic()
        voting, switched = _marks(operation, done)
        serving = max(before, after)
        self.windows += [
            Window(name=f"{change} preparing", begin=begin, end=voting, size=before),
            Window(name=f"{change} switch", begin=voting, end=switched, size=serving),
        ]
        time.sleep(min(SETTLE, self.scenario.seconds))
        self.windows.append(Window(name=f"{change} after", begin=switched, end=time.monotonic(), size=after))
        forecast.measured_bytes = sum(_moved(deployment).values()) - moved
        record = operation.status()
        self.operations.append(
            OperationReport(
                change=change,
                operation=operation.id,
                phase=record.phase,
                error=record.error,
                preparing_s=voting - begin,
                switch_s=switched - voting,
                finish_s=done - switched,
                steps=_steps(deployment, begin, voting),
                forecast=forecast,
            )
        )

    # -- afterwards --------------------------------------------------------------------------------------------

    def _check(self, streams: Sequence[Stream], scratch: Path) -> tuple[list[tokens.Wrong], bool, list[str]]:
        if not self.scenario.check:
            return [], False, []
        with self._console.status("comparing every token with transformers' own model") as status:

            def progress(done: int, total: int) -> None:
                status.update(f"comparing every token with transformers' own model: {done} of {total} requests")

            try:
                pairs = [(stream.prompt, tuple(stream.tokens)) for stream in streams if stream.tokens]
                return tokens.check(self.scenario.model, pairs, scratch, progress, self.scenario.numbers), True, []
            except ElasticError as error:
                return [], False, [str(error)]

    def _validate(self, journal: Path) -> list[str]:
        from .journals import validate

        with self._console.status("validating the journals against the spec"):
            return validate(journal)


def _marks(operation: Operation, done: float) -> tuple[float, float]:
    """When the vote was asked for, and when every engine had switched."""
    history = operation.status().history
    entered: dict[str, float] = {}
    for state, moment in history:
        entered.setdefault(state, moment)
    voting = entered.get("voting", done)
    switched = min([entered[state] for state in ("completing", "retiring", "parting") if state in entered] or [done])
    return voting, max(voting, switched)


def _steps(deployment: Deployment, begin: float, end: float) -> dict[str, int]:
    """Forward steps that each engine did between two moments, from its heartbeats."""
    seen: dict[str, list[int]] = {}
    for moment, engine, step in list(deployment.samples):
        if begin - 0.25 <= moment <= end + 0.25 and step:
            seen.setdefault(engine, []).append(step)
    return {engine: max(steps) - min(steps) for engine, steps in sorted(seen.items())}


def _moved(deployment: Deployment) -> dict[str, int]:
    total: dict[str, int] = {}
    for moved in deployment.moved.values():
        for path, count in moved.items():
            total[path] = total.get(path, 0) + count
    return total
