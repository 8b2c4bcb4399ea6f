"""`bench throughput`: a model of real shape grows from one engine to two and shrinks back under a stated load."""

from __future__ import annotations

import json
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from elasticfsm.errors import ElasticError

from ...deployment import Deployment, Options
from ...engine.config import ARCHITECTURE
from ...engine.generated import FIELD
from ...router import Stream
from ...wire import Transfer
from . import growing, journal, stuck
from .cycles import memory_said, used_mib
from .machine import copy_gbs, need_gpu, quantile

PROMPT, NEW, CONTEXT = 32, 160, 256
UNITS = {"one": "one", "two": "two", "preparing grow": "one", "preparing shrink": "two", "spread": "two"}


class OperationFailed(ElasticError):
    """A change of size did not complete."""


def shape(folder: Path, layers: int = 48) -> Path:
    """A directory with the config of Qwen3-30B-A3B's shape whose weights are drawn; fewer layers if wanted."""
    fields = {
        "architectures": [ARCHITECTURE],
        "model_type": "qwen3_moe",
        "vocab_size": 151936,
        "hidden_size": 2048,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 768,
        "max_position_embeddings": CONTEXT,
        "norm_topk_prob": True,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": False,
        FIELD: 7,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


class Load:
    """`clients` in a closed loop, each with one request of PROMPT random tokens and at most `new` to come."""

    def __init__(self, deployment: Deployment, clients: int, new: int = NEW) -> None:
        self.streams: list[Stream] = []
        self.errors: list[str] = []
        self._deployment, self._new = deployment, new
        self._random = random.Random(1)
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._client, daemon=True) for _ in range(clients)]
        for thread in self._threads:
            thread.start()

    def _client(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                prompt = [self._random.randrange(1, 150000) for _ in range(PROMPT)]
                length = self._random.randrange(self._new // 2, self._new)
            try:
                stream = self._deployment.submit(prompt, length)
                with self._lock:
                    self.streams.append(stream)
                stream.wait(120.0)
            except ElasticError as error:
                self.errors.append(str(error))
                return

    def rate(self, begin: float, end: float) -> float:
        """Tokens a second between two moments."""
        count = sum(begin <= moment < end for stream in list(self.streams) for moment in list(stream.times))
        return count / (end - begin)

    def stop(self, within: float = 120.0) -> None:
        """No new requests; blocks until the running ones have ended, at most so many seconds."""
        self._stopping.set()
        limit = time.monotonic() + within
        for thread in self._threads:
            thread.join(max(0.0, limit - time.monotonic()))


def run(
    layers: int = 48,
    clients: int = 128,
    seconds: float = 6.0,
    gpus: int = 2,
    transfer: Transfer = "auto",
    within: float = 90.0,
    spread: float = 30.0,
    back: bool = True,
    new: int = NEW,
) -> dict[str, Any]:
    """Serve at one engine, grow to two, serve, shrink, serve; an engine per GPU where there are two. Takes minutes.

    `back`: shrink again. A change that does not end within so many seconds ends the measurement: why is then part of
    the result (`stuck`).
    """
    need_gpu(gpus)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        options = Options(
            device="cuda",
            transfer=transfer,
            journal=str(scratch / "journal"),
            slots=128,
            kv_blocks=64 * (CONTEXT // 16),
            eplb_interval=1_000_000,
        )
        found: dict[str, Any] = {"layers": layers, "clients": clients, "gpus": gpus, "transfer": transfer, "marks": {}}
        begun = time.monotonic()
        with Deployment.start(shape(scratch / "model", layers), 1, options) as deployment:
            found["start_s"] = time.monotonic() - begun
            load = Load(deployment, clients, new)
            time.sleep(4.0)
            found["memory_mib"] = [used_mib()]
            found["marks"]["one"] = _steady(seconds)
            found["tokens_per_s_one"] = load.rate(*found["marks"]["one"])
            try:
                for change, size in (("grow", 2), ("shrink", 1))[: 1 + back]:
                    _change(deployment, load, found, change, size, within)
                    if size == 2:
                        _spread(deployment, load, found, seconds, spread)
                        found["memory_mib"].append(used_mib())
                found["marks"]["back"] = _steady(seconds / 2)
                found["tokens_per_s_back"] = load.rate(*found["marks"]["back"])
                found["memory_mib"].append(used_mib())
            except ElasticError as error:
                found |= {"failed": f"{type(error).__name__}: {error}", "stuck": stuck.describe(deployment)}
            load.stop(10.0 if "failed" in found else 120.0)
            found["lost"] = sum(stream.outcome != "finished" for stream in load.streams)
            found["sent"], found["errors"] = len(load.streams), load.errors[:3]
            found["counters"] = dict(deployment.counters)
        return found | _told(scratch / "journal", found)


def _change(deployment: Deployment, load: Load, found: dict[str, Any], name: str, size: int, within: float) -> None:
    """Change the size and note when what happened; OperationFailed or DeadlineExpired when it does not complete."""
    begin = time.monotonic()
    operation = deployment.scale(size)
    try:
        phase = operation.wait(within)
    finally:
        done = time.monotonic()
        history = [(state, moment - begin) for state, moment in operation.status().history]
        entered = dict(reversed(history))
        found["marks"][name] = (begin, done)
        found[f"{name}_history"], found[f"{name}_s"] = history, done - begin
        found[f"tokens_per_s_{name}"] = load.rate(begin, done)
    found[f"{name}_phase"] = phase.phase
    if phase.phase != "completed":
        raise OperationFailed(f"{name}: {phase.phase}: {phase.error}")
    voting = begin + entered.get("voting", done - begin)
    found["marks"][f"preparing {name}"] = (begin, voting)
    found["marks"][f"switch {name}"] = (voting, begin + _switched(entered, done - begin))


def _spread(deployment: Deployment, load: Load, found: dict[str, Any], seconds: float, within: float) -> None:
    """Wait until experts have moved to the new engine, and serve so for a while."""
    begin = time.monotonic()
    found["marks"]["spread"] = (begin, _moved(deployment, within))
    found["marks"]["two"] = _steady(seconds)
    found |= {f"tokens_per_s_{each}": load.rate(*found["marks"][each]) for each in ("spread", "two")}
    found["spread_s"] = found["marks"]["spread"][1] - begin
    found["ratio"] = found["tokens_per_s_two"] / found["tokens_per_s_one"]
    found["moved_bytes"] = _bytes(deployment)  # by growing; shrinking moves experts back


def _bytes(deployment: Deployment) -> int:
    counters = list(deployment.counters.values())
    return sum(count for each in counters for name, count in each.items() if name.startswith("bytes_"))


def _steady(seconds: float) -> tuple[float, float]:
    begin = time.monotonic()
    time.sleep(seconds)
    return begin, time.monotonic()


def _switched(entered: dict[str, float], done: float) -> float:
    """When all had switched, in seconds since the request."""
    return min([entered[state] for state in ("completing", "retiring", "parting") if state in entered] or [done])


def _moved(deployment: Deployment, seconds: float) -> float:
    """When the experts had been spread over both engines, or the time was over."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        if any(each.get("rebalances", 0) for each in list(deployment.counters.values())):
            break
        time.sleep(0.1)
    return time.monotonic()


def _told(journals: Path, found: dict[str, Any]) -> dict[str, Any]:
    """Steps by phase, in steps alone at the same size; what moved against what a plain copy would take."""
    steps = journal.steps(journals)
    marks = found["marks"]
    taken = {name: journal.within(steps, *mark) for name, mark in marks.items()}
    unit = {name: statistics.median(taken[name]) for name in ("one", "two") if taken.get(name)}
    told: dict[str, Any] = {"step_ms": unit, "alone": {}, "beside": {}, "pause_steps": {}}
    for name, size in UNITS.items():
        if size in unit and taken.get(name):
            told["beside" if name != size else "alone"][name] = _quantiles(taken[name], unit[size])
    for name in ("grow", "shrink"):
        if len(unit) == 2 and taken.get(f"switch {name}"):
            told["pause_steps"][name] = max(taken[f"switch {name}"]) / max(unit.values())
    told["phases_existing"] = journal.phases(journals, "e0")
    if (journals / "e1.jsonl").exists():
        told["phases_new"] = journal.phases(journals, "e1")
    if "grow" in marks:
        told["growth_phases"] = growing.split(journals, *marks["grow"])
    gbs = copy_gbs("cuda:0", f"cuda:{found['gpus'] - 1}")
    told |= {"copy_gbs": gbs, "ideal_s": found.get("moved_bytes", 0) / gbs / 1e9}
    told["memory_said"] = memory_said(journals, "e0")
    texts = [event["text"] for event in journal.events(journals, "e0") if "text" in event]
    return told | {"says": list(dict.fromkeys(texts))[:6]}


def _quantiles(taken: list[float], unit: float) -> dict[str, float]:
    return {
        "count": len(taken),
        "p50": statistics.median(taken) / unit,
        "p99": quantile(taken, 0.99) / unit,
        "max": max(taken) / unit,
    }
