"""The dry run beside the run: what `elasticfsm plan` says just before each change of size, and what was measured."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from ..deployment import Deployment
from ..forecast.predict import Assumptions, predict
from ..router import Stream
from .gaps import Gap, intervals

RECENT = 500  # intervals between tokens that tell how long a step takes at present


class Forecast(msgspec.Struct, kw_only=True):
    """What was predicted, and beside it what was measured; bytes are all that crossed engines."""

    preparing_s: float
    pause_steps: float
    bytes_moved: int
    measured_pause_steps: float = 0.0
    measured_bytes: int = 0


def foretell(deployment: Deployment, streams: Sequence[Stream], after: int) -> Forecast:
    """Predict the change to `after` engines.

    Told who would leave, where experts are, how long steps take now, and how long this deployment's own start took.
    """
    recent = [length for _, length in intervals(list(streams))[-RECENT:]]
    options = deployment.options
    said = predict(
        deployment.config,
        len(deployment.members),
        after,
        options.slots,
        leaving=[deployment.members.index(engine) for engine in deployment.leaving(after)],
        placement=deployment.placement,
        policy=options.policy,
        assumptions=Assumptions(
            step_seconds=statistics.median(recent) if recent else Assumptions().step_seconds,
            start_seconds=deployment.start_seconds or Assumptions().start_seconds,
            kv_blocks=options.kv_blocks,
            transfer=options.transfer,
        ),
    )
    return Forecast(preparing_s=said.preparing_seconds, pause_steps=said.pause_steps, bytes_moved=said.bytes_moved)


def compare_pauses(forecasts: Sequence[Forecast], gaps: Sequence[Gap]) -> None:
    """Put beside each forecast the longest gap of its switch; operations and switches come in the same order."""
    switches = [gap for gap in gaps if gap.window.endswith(" switch")]
    for forecast, gap in zip(forecasts, switches, strict=False):
        forecast.measured_pause_steps = gap.longest_steps
