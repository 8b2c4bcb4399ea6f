"""The dry run: the same policy, protocol and arithmetic as the real one, and a simple model of time.

Times. A new engine needs `start_seconds` (a deployment knows what its own start took), then reads the weights that
every engine holds at `bandwidth`; expert rows follow at the same bandwidth, bounded by the rank that receives or sends
most. The pause is what one step boundary does at the switch: its collectives, on top of one step.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from elasticfsm.compile import program
from elasticfsm.errors import RequestRefused

from ..engine.config import ModelConfig
from ..engine.kv_cache import BLOCK_SIZE
from ..experts.placement import EMPTY, Placement, refuse_size
from ..experts.plan import DEFAULT_POLICY, plan
from ..experts.policy.bounds import Verdict, judge, seconds_bound
from ..experts.policy.removal import choose_leaving
from ..experts.policy.settings import Policy
from .course import Role, courses, pause_collectives
from .traffic import RankBytes, expert_bytes, experts_traffic, non_expert_bytes, weights_traffic


class Assumptions(msgspec.Struct, kw_only=True, frozen=True):
    """What the model of time is fed with; `bandwidth` in bytes per second (0: measured by copying memory here)."""

    bandwidth: float = 0.0
    step_seconds: float = 0.01
    collective_seconds: float = 0.001
    start_seconds: float = 4.0
    itemsize: int = 4
    kv_blocks: int = 512
    transfer: str = "nixl"


class LayerChange(msgspec.Struct, kw_only=True):
    """Contents of every rank before and after, `-` where empty; alike for the layers `first` to `last`."""

    first: int
    last: int
    before: list[str]
    after: list[str]


class Prediction(msgspec.Struct, kw_only=True):
    """What the operation will do. Ranks are numbered as while both old and new engines are there."""

    protocol: str
    before: int
    after: int
    leaving: list[int]
    slots: int
    roles: list[Role]
    ranks: list[RankBytes]
    layers_moved: int
    rows: Verdict
    bandwidth: float
    bandwidth_measured: bool
    pause_steps: float
    preparing_seconds: float
    experts_seconds: float
    kv_tokens_before: int
    kv_tokens_after: int
    placement: list[LayerChange]

    @property
    def bytes_moved(self) -> int:
        """All bytes that cross ranks."""
        return sum(rank.weights_received + rank.experts_received for rank in self.ranks)

    @property
    def seconds(self) -> float:
        """From the request until the experts are in place."""
        return self.preparing_seconds + self.experts_seconds


def predict(
    config: ModelConfig,
    before: int,
    after: int,
    slots: int,
    *,
    leaving: Sequence[int] = (),
    placement: Placement | None = None,
    loads: npt.NDArray[Any] | None = None,
    policy: Policy = DEFAULT_POLICY,
    assumptions: Assumptions | None = None,
) -> Prediction:
    """Return what the change from `before` to `after` engines with `slots` expert slots each will do; starts nothing.

    `leaving` are ranks (default: those whose leaving orphans the fewest experts); `placement` is the one in force
    (default: that of a fresh start); `loads` are counts [layers, experts] (default: none known). May copy memory for
    some milliseconds to measure the bandwidth. Raises RequestRefused for sizes that cannot be.
    """
    known = assumptions or Assumptions()
    for size in (before, after):
        refuse_size(size, config.num_experts, slots)
    if before == after:
        raise RequestRefused(f"the size is {after} already: nothing will happen")
    now = placement or Placement.initial(config.num_hidden_layers, config.num_experts, before, slots)
    gone = _leaving(now, before, after, leaving)
    usable = np.array([rank not in gone for rank in range(max(before, after))])
    current = now.grow(after) if after > before else now
    counts = np.zeros((current.layers, current.experts), np.int64) if loads is None else loads
    target = plan(current, counts, np.flatnonzero(usable).tolist(), policy)
    return _predicted(config, before, after, gone, current, target, counts, usable, known)


def _predicted(
    config: ModelConfig,
    before: int,
    after: int,
    gone: list[int],
    current: Placement,
    target: Placement,
    loads: npt.NDArray[Any],
    usable: npt.NDArray[np.bool_],
    known: Assumptions,
) -> Prediction:
    protocol = "scale_up" if after > before else "scale_down"
    roles = [_role(rank, before, after, gone) for rank in range(max(before, after))]
    ranks = [RankBytes(rank=rank, role=role) for rank, role in enumerate(roles)]
    weights_traffic(ranks, non_expert_bytes(config, known.itemsize), known.transfer)
    layers = experts_traffic(ranks, current, target, expert_bytes(config, known.itemsize))
    ways = courses(program(protocol), {"coordinator": 1} | {role: roles.count(role) for role in roles})
    bandwidth = known.bandwidth or measured_bandwidth()
    boundary = max(pause_collectives(way) for way in ways if way.role in ("existing", "remaining"))
    reading = seconds_bound([rank.weights_received for rank in ranks], [rank.weights_sent for rank in ranks], bandwidth)
    return Prediction(
        protocol=protocol,
        before=before,
        after=after,
        leaving=gone,
        slots=current.slots_per_rank,
        roles=ways,
        ranks=ranks,
        layers_moved=layers,
        rows=judge(_rows(current), _rows(target), loads + 1, usable),
        bandwidth=bandwidth,
        bandwidth_measured=not known.bandwidth,
        pause_steps=1 + boundary * known.collective_seconds / known.step_seconds,
        preparing_seconds=(known.start_seconds if after > before else 0.0) + reading,
        experts_seconds=seconds_bound(
            [rank.experts_received for rank in ranks], [rank.experts_sent for rank in ranks], bandwidth
        ),
        kv_tokens_before=before * known.kv_blocks * BLOCK_SIZE,
        kv_tokens_after=after * known.kv_blocks * BLOCK_SIZE,
        placement=_changes(current, target),
    )


def measured_bandwidth(megabytes: int = 32, repeats: int = 5) -> float:
    """Return bytes per second of copying memory here, the median of a few copies: what a transfer cannot exceed."""
    source = np.ones(megabytes << 20, dtype=np.uint8)
    target = np.empty_like(source)
    times = []
    for _ in range(repeats + 1):
        begin = time.perf_counter()
        np.copyto(target, source)
        times.append(time.perf_counter() - begin)
    return float(source.nbytes / statistics.median(times[1:]))  # the first one maps the pages


def _leaving(now: Placement, before: int, after: int, asked: Sequence[int]) -> list[int]:
    count = max(0, before - after)
    if not asked:
        return list(choose_leaving(now, count)) if count else []
    wrong = [rank for rank in asked if not 0 <= rank < before]
    if wrong or sorted(set(asked)) != sorted(asked) or len(asked) != count:
        named = ", ".join(map(str, asked))
        raise RequestRefused(
            f"ranks {named} cannot leave from {before} engines to have {after}: expected {count} different ranks "
            f"of 0 to {before - 1}"
        )
    return sorted(asked)


def _role(rank: int, before: int, after: int, gone: list[int]) -> str:
    if after > before:
        return "existing" if rank < before else "new"
    return "removing" if rank in gone else "remaining"


def _rows(placement: Placement) -> npt.NDArray[np.int32]:
    return placement.physical_to_logical.reshape(placement.layers, placement.world_size, -1)


def _changes(current: Placement, target: Placement) -> list[LayerChange]:
    """Return the placement layer by layer, runs of equal layers as one."""
    changes: list[LayerChange] = []
    for layer, (was, will) in enumerate(zip(_rows(current), _rows(target), strict=True)):
        before, after = [_named(rank) for rank in was], [_named(rank) for rank in will]
        if changes and (changes[-1].before, changes[-1].after) == (before, after):
            changes[-1].last = layer
        else:
            changes.append(LayerChange(first=layer, last=layer, before=before, after=after))
    return changes


def _named(held: npt.NDArray[np.int32]) -> str:
    """Return experts as ranges: 0-5,9; empty slots are not named."""
    experts = sorted(int(expert) for expert in held if expert != EMPTY)
    runs: list[list[int]] = []
    for expert in experts:
        if runs and expert == runs[-1][-1] + 1:
            runs[-1].append(expert)
        else:
            runs.append([expert])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs) or "-"
