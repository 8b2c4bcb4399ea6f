"""The cases of the policy benchmark: models, changes of size and drifts of load, with synthetic loads from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from ..experts.placement import EMPTY, IntArray
from ..experts.policy.balanced import balanced
from ..experts.policy.tally import Bools

Kind = Literal["grow", "shrink", "loss", "drift"]


@dataclass(frozen=True)
class Model:
    """MoE layers, experts per layer, bytes of one expert (FP8)."""

    name: str
    layers: int
    experts: int
    expert_bytes: int


@dataclass(frozen=True)
class Case:
    """From `before` to `after` ranks of `slots`; loads are log-normal (sigma 1), `drift` is the sigma of a factor."""

    model: Model
    slots: int
    before: int
    after: int
    kind: Kind
    drift: float = 0.0

    @property
    def name(self) -> str:
        """What people call it."""
        ranks = f"{self.before} -> {self.after}" if self.before != self.after else f"EP{self.after}"
        drift = f", drift {self.drift:g}" if self.kind == "drift" else ", rank lost" if self.kind == "loss" else ""
        return f"{self.model.name} {ranks}, S{self.slots}{drift}"

    def setting(self, seed: int) -> tuple[IntArray, npt.NDArray[np.int64], Bools]:
        """Return (placement in force [layers, ranks, slots], loads now [layers, experts], usable ranks).

        The placement is the balanced one for the loads before the drift; joining ranks are empty.
        """
        model = self.model
        rng = np.random.default_rng([seed, model.layers, model.experts, self.before, self.slots])
        first = rng.lognormal(0, 1, (model.layers, model.experts))
        now = first * rng.lognormal(0, self.drift, first.shape) if self.drift else first
        was, loads = ((each * 1000).astype(np.int64) for each in (first, now))
        ranks = max(self.before, self.after)
        rows = np.full((model.layers, ranks, self.slots), EMPTY, dtype=np.int32)
        rows[:, : self.before] = balanced(was, self.before, self.slots)
        return rows, loads, np.arange(ranks) < self.after


LITE = Model("DSV2-Lite", 26, 64, 8_650_752)
QWEN = Model("Qwen3-30B", 48, 128, 4_718_592)
DSV3 = Model("DSV3", 58, 256, 44_040_192)

RESCALES = (
    Case(QWEN, 72, 2, 4, "grow"),
    Case(QWEN, 72, 4, 2, "shrink"),
    Case(LITE, 16, 4, 8, "grow"),
    Case(LITE, 16, 8, 4, "shrink"),
    Case(DSV3, 18, 16, 24, "grow"),
    Case(DSV3, 18, 24, 16, "shrink"),
    Case(DSV3, 9, 32, 31, "loss"),
    Case(DSV3, 9, 32, 48, "grow"),
)
DRIFTS = tuple(
    Case(model, slots, ranks, ranks, "drift", drift)
    for model, slots, ranks in ((QWEN, 20, 8), (DSV3, 9, 32), (DSV3, 5, 64))
    for drift in (0.05, 0.3, 1.0)
)
SIZES = tuple(
    Case(model, slots, ranks, ranks, "drift", 0.3)
    for model, slots, ranks in ((LITE, 9, 8), (QWEN, 72, 2), (DSV3, 36, 8), (DSV3, 4, 144))
)
CASES = (*RESCALES, *DRIFTS, *SIZES)
