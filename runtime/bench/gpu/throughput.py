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
from . import journal
from .cycles import used_mib
from .machine import copy_gbs, need_gpu, quantile

PROMPT, NEW, CONTEXT = 32, 160, 256


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
    """`clients` in a closed loop, each with one request of PROMPT random tokens and NEW to come."""

    def __init__(self, deployment: Deployment, clients: int) -> None:
        self.streams: list[Stream] = []
        self.errors: list[str] = []
        self._deployment = deployment
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
                length = self._random.randrange(NEW // 2, NEW)
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

    def stop(self) -> None:
        """No new requests; blocks until the running ones have ended."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(120.0)


def run(layers: int = 48, clients: int = 128, seconds: float = 6.0, gpus: int = 2) -> dict[str, Any]:
    """Serve at one engine, grow to two, serve, shrink, serve; one engine per GPU. Blocks for minutes."""
    need_gpu(gpus)
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        options = Options(
            device="cuda",
            journal=str(scratch / "journal"),
            slots=128,
            kv_blocks=64 * (CONTEXT // 16),
            eplb_interval=1_000_000,
        )
        begun = time.monotonic()
        with Deployment.start(shape(scratch / "model", layers), 1, options) as deployment:
            started = time.monotonic() - begun
            load = Load(deployment, clients)
            time.sleep(4.0)
            found = _grow(deployment, load, seconds)
            load.stop()
            found["lost"] = sum(stream.outcome != "finished" for stream in load.streams)
            found["sent"], found["errors"] = len(load.streams), load.errors[:3]
            counters = dict(deployment.counters)
        found |= {"layers": layers, "clients": clients, "start_s": started, "counters": counters}
        return found | _told(scratch / "journal", found)


def _grow(deployment: Deployment, load: Load, seconds: float) -> dict[str, Any]:
    found: dict[str, Any] = {"memory_mib": [used_mib()]}
    marks: dict[str, tuple[float, float]] = {}
    marks["one"] = _steady(seconds)
    for name, size in (("grow", 2), ("shrink", 1)):
        begin = time.monotonic()
        operation = deployment.scale(size)
        phase = operation.wait(60.0)
        done = time.monotonic()
        marks[name] = (begin, done)
        found[f"{name}_history"] = [(state, moment - begin) for state, moment in operation.status().history]
        found[f"{name}_s"], found[f"{name}_phase"] = done - begin, phase.phase
        if size == 2:
            marks["spread"] = (done, _moved(deployment, 30.0))
            found["spread_s"] = marks["spread"][1] - done
            marks["two"] = _steady(seconds)
            found["memory_mib"].append(used_mib())
    marks["back"] = _steady(seconds / 2)
    found["memory_mib"].append(used_mib())
    found["marks"] = marks
    found |= {f"tokens_per_s_{name}": load.rate(*marks[name]) for name in ("one", "grow", "spread", "two", "back")}
    found["ratio"] = found["tokens_per_s_two"] / found["tokens_per_s_one"]
    return found


def _steady(seconds: float) -> tuple[float, float]:
    begin = time.monotonic()
    time.sleep(seconds)
    return begin, time.monotonic()


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
    unit = {name: statistics.median(journal.within(steps, *marks[name])) for name in ("one", "two")}
    told: dict[str, Any] = {"step_ms": unit}
    for name in ("grow", "spread", "shrink"):
        during = journal.within(steps, *marks[name])
        size = "one" if name == "grow" else "two"
        if during:
            told[f"{name}_steps"] = {
                "count": len(during),
                "p50": statistics.median(during) / unit[size],
                "p99": quantile(during, 0.99) / unit[size],
                "max": max(during) / unit[size],
            }
    told["pause_steps"] = {}
    for name in ("grow", "shrink"):
        during = _around(steps, marks[name][0] + _switched(found[f"{name}_history"]))
        told["pause_steps"][name] = max(during, default=0.0) / max(unit.values())
    told["phases_existing"] = journal.phases(journals, "e0")
    told["phases_new"] = journal.phases(journals, "e1")
    moved = sum(count for each in found["counters"].values() for name, count in each.items() if "bytes_" in name)
    gbs = copy_gbs("cuda:0", "cuda:1")
    told |= {"moved_bytes": moved, "copy_gbs": gbs, "ideal_s": moved / gbs / 1e9}
    texts = [event["text"] for event in journal.events(journals, "e0") if "text" in event]
    return told | {"says": list(dict.fromkeys(texts))[:6]}


def _switched(history: list[tuple[str, float]]) -> float:
    entered = dict(reversed(history))
    return entered.get("voting", 0.0)


def _around(steps: list[tuple[float, float]], voting: float) -> list[float]:
    """Steps from the vote on, for two seconds: the switch lies among them."""
    return journal.within(steps, voting, voting + 2.0)
