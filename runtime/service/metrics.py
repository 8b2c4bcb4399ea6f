"""Prometheus metrics of a deployment: one registry, in the coordinator, with engines by id.

Events (an operation or a request that ended, a pause) are counted when they happen; everything else is read when it is
asked for. Nothing is registered anew by a rescale, so counters go on.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from prometheus_client import CollectorRegistry, Histogram, disable_created_metrics, generate_latest
from prometheus_client import Counter as Count
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ..deployment import Deployment
from ..operation import Operation
from ..router import Stream
from .answers import engine_state, running_record

Names = Literal["elasticfsm", "vllm"]

disable_created_metrics()  # type: ignore[no-untyped-call]

STATES = ("active", "joining", "retiring", "retired", "failed")
PHASE_SECONDS = (0.1, 0.3, 1, 2, 5, 10, 30, 60, 120, 300, 600)
PAUSE_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10)
TOKEN_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
REQUEST_SECONDS = (0.1, 0.3, 1, 3, 10, 30, 60, 120, 300)


class Metrics:
    """The registry of one deployment; `prefix` is how metrics that other engines have, too, are named."""

    content_type = "text/plain; version=0.0.4; charset=utf-8"

    def __init__(self, deployment: Deployment, names: Names = "elasticfsm") -> None:
        self.registry = CollectorRegistry()
        self._deployment = deployment
        self._seen: set[str] = {each.id for each in deployment.operations.past}  # of former coordinators
        self._model = deployment.model.name
        self._events(f"{names}:" if names == "vllm" else f"{names}_")
        self.registry.register(_Looks(deployment, self._model, names))
        deployment.router.ended = self.request_ended
        deployment.counts.paused = self.pause.observe

    def text(self) -> bytes:
        """Everything, in the text format."""
        self.absorb()
        return generate_latest(self.registry)

    def absorb(self) -> None:
        """Count the operations that have ended since."""
        operations = self._deployment.operations
        for each in [*operations.past, *([operations.current] if operations.current is not None else [])]:
            if each.ended and each.id not in self._seen and each.record.direction != "none":
                self._seen.add(each.id)
                self._operation(each)

    def request_ended(self, stream: Stream) -> None:
        """Count a request; called by the router for each, once."""
        labels = (self._model, stream.owner)
        if stream.outcome != "finished":
            self.requests.labels("aborted").inc()
            return
        self.requests.labels("handed_over" if stream.handovers else "finished").inc()
        self.success.labels(*labels, stream.reason).inc()
        if stream.times:
            self.first.labels(*labels).observe(stream.times[0] - stream.submitted)
            self.whole.labels(*labels).observe(stream.times[-1] - stream.submitted)
        between = self.between.labels(*labels)
        for before, after in itertools.pairwise(stream.times):
            between.observe(after - before)

    def _operation(self, operation: Operation) -> None:
        record = operation.status()
        self.operations.labels(record.direction, record.phase).inc()
        for phase, seconds in phases(record.history).items():
            self.phases.labels(record.direction, phase).observe(seconds)

    def _events(self, shared: str) -> None:
        registry, labels = self.registry, ("model_name", "engine")
        self.operations = Count(
            "elasticfsm_operations_total", "Operations that have ended.", ("direction", "outcome"), registry=registry
        )
        self.phases = Histogram(
            "elasticfsm_operation_phase_seconds",
            "Seconds that an operation spent in a phase.",
            ("direction", "phase"),
            registry=registry,
            buckets=PHASE_SECONDS,
        )
        self.pause = Histogram(
            "elasticfsm_pause_seconds",
            "From the end of an engine's last step on the old generation to the end of its first one on the new.",
            registry=registry,
            buckets=PAUSE_SECONDS,
        )
        self.requests = Count("elasticfsm_requests_total", "Requests that have ended.", ("outcome",), registry=registry)
        self.success = Count(
            f"{shared}request_success_total", "Requests that finished.", (*labels, "finished_reason"), registry=registry
        )
        self.first, self.between, self.whole = (
            Histogram(f"{shared}{name}", text, labels, registry=registry, buckets=buckets)
            for name, text, buckets in (
                ("time_to_first_token_seconds", "From the request to its first token.", TOKEN_SECONDS),
                ("inter_token_latency_seconds", "Between two tokens of a request.", TOKEN_SECONDS),
                ("e2e_request_latency_seconds", "From the request to its last token.", REQUEST_SECONDS),
            )
        )
        for outcome in ("finished", "handed_over", "aborted"):
            self.requests.labels(outcome)
        for direction in ("up", "down"):
            for outcome in ("completed", "aborted", "failed"):
                self.operations.labels(direction, outcome)


def phases(history: list[tuple[str, float]]) -> dict[str, float]:
    """Seconds by phase, from (state, monotonic seconds): preparing until the vote is asked for, then committing."""
    begun = history[0][1] if history else 0.0
    ended = history[-1][1] if history else 0.0
    decided = next((moment for state, moment in history if state in ("deciding", "asking")), ended)
    return {"preparing": decided - begun, "committing": ended - decided}


class _Looks(Collector):
    """What is read at the moment of the question."""

    def __init__(self, deployment: Deployment, model: str, names: Names) -> None:
        self._deployment = deployment
        self._model = model
        self._shared = f"{names}:" if names == "vllm" else f"{names}_"

    def collect(self) -> Iterator[Metric]:
        """Every family, read now."""
        yield from self._topology()
        yield from self._engines()
        yield from self._moves()

    def _topology(self) -> Iterator[Metric]:
        deployment = self._deployment
        record = running_record(deployment)
        states = Counter(engine_state(deployment, member, record) for member in deployment.roster.all())
        family = GaugeMetricFamily("elasticfsm_engines", "Engines by state.", labels=["state"])
        for state in STATES:
            family.add_metric([state], states[state])
        yield family
        active = len(deployment.members)
        requested = record.requested_size if record is not None else active
        living = sum(deployment.roster.lives((engine,)) for engine in deployment.members)
        yield GaugeMetricFamily("elasticfsm_requested_size", "Engines that were asked for.", requested)
        yield GaugeMetricFamily("elasticfsm_active_size", "Engines of the generation that serves.", active)
        yield GaugeMetricFamily("elasticfsm_available_size", "Those of them that live.", living)
        yield GaugeMetricFamily("elasticfsm_generation", "Number of the generation.", deployment.generation)
        info = GaugeMetricFamily("elasticfsm_instance_info", "This coordinator.", labels=["instance_id", "model_name"])
        info.add_metric([deployment.instance, self._model], 1)
        yield info

    def _engines(self) -> Iterator[Metric]:
        deployment, labels = self._deployment, ["model_name", "engine"]
        running = GaugeMetricFamily(f"{self._shared}num_requests_running", "Requests in the batch.", labels=labels)
        waiting = GaugeMetricFamily(f"{self._shared}num_requests_waiting", "Requests in the queue.", labels=labels)
        usage = GaugeMetricFamily(f"{self._shared}kv_cache_usage_perc", "Used share of the cache.", labels=labels)
        for member in deployment.roster.living():
            said = member.status
            if said is None:
                continue
            name = [self._model, member.engine]
            total, free = said.counters.get("kv_total", 0), said.counters.get("kv_free", 0)
            running.add_metric(name, said.running)
            waiting.add_metric(name, said.waiting)
            usage.add_metric(name, (total - free) / total if total else 0.0)
        yield from (running, waiting, usage)
        for metric, counts in (("prompt", deployment.router.prompted), ("generation", deployment.router.generated)):
            family = CounterMetricFamily(f"{self._shared}{metric}_tokens", f"Tokens ({metric}).", labels=labels)
            for engine, count in sorted(counts.items()):
                family.add_metric([self._model, engine], count)
            yield family

    def _moves(self) -> Iterator[Metric]:
        deployment, counts = self._deployment, self._deployment.counts
        moved: Counter[str] = Counter({"nixl": 0, "p2p": 0})
        for each in list(counts.moved.values()):
            moved.update(each)
        family = CounterMetricFamily("elasticfsm_transfer_bytes", "Bytes received from engines.", labels=["path"])
        for path, count in sorted(moved.items()):
            family.add_metric([path], count)
        yield family
        stale = Counter(deployment.status().dropped)
        family = CounterMetricFamily("elasticfsm_stale_messages", "Messages that were dropped.", labels=["kind"])
        for kind, count in sorted(stale.items()):
            family.add_metric([kind], count)
        yield family
        family = CounterMetricFamily("elasticfsm_monitor_violations", "Refused collectives.", labels=["engine"])
        for engine, count in sorted(counts.violations.items()):
            family.add_metric([engine], count)
        yield family
        yield CounterMetricFamily(
            "elasticfsm_eplb_moved_experts", "Slots that got another expert.", counts.experts_moved
        )
        yield GaugeMetricFamily(
            "elasticfsm_eplb_last_rebalance_timestamp_seconds", "When experts moved last.", counts.rebalanced
        )
        balance = [seen["balance_ppm"] / 1e6 for seen in list(counts.counters.values()) if seen.get("balance_ppm")]
        yield GaugeMetricFamily(
            "elasticfsm_eplb_balancedness",
            "Mean load of the ranks over the largest, at the last plan; 0: none was made.",
            balance[-1] if balance else 0.0,
        )
