"""One forward step of an engine: schedule, lay out, run, sample, record."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from .batch import build_batch
from .exchange import ExpertExchange
from .kv_cache import KVCache
from .model import Model
from .request import TokenEvent
from .routing import ExpertRouting
from .scheduler import Scheduler


class StepResult(NamedTuple):
    """EVENTS: tokens generated; TOKENS: how many entered (0: a dummy step); EXPERT_LOAD int64 [layers, experts]."""

    events: list[TokenEvent]
    tokens: int
    expert_load: Tensor


def run_step(
    model: Model, scheduler: Scheduler, cache: KVCache, routing: ExpertRouting, exchange: ExpertExchange
) -> StepResult:
    """Run one step on this rank; all ranks of EXCHANGE call it together, also those without a request. Blocks.

    An error of the exchange passes through; no request has changed then, and the step can be run again on another one.
    """
    chunks = scheduler.schedule()
    batch = build_batch(chunks, model.config, cache.block_size, model.device)
    logits, load = model.forward(batch, cache, routing, exchange)
    events = scheduler.commit(chunks, logits.argmax(dim=-1).tolist())
    return StepResult(events, len(batch.tokens), load)
