"""The core of an engine process for the device that it was told to use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..experts.state import ExpertState
from ..wire import Settings
from .driven import DrivenCore


def core_for(settings: Settings, say: Callable[[str], None], *ways: Any) -> tuple[DrivenCore, dict[str, Any]]:
    """The core for the device of the settings, and what the library has to know of it."""
    if settings.device == "cpu":
        return DrivenCore(settings, *ways), {}
    from .driven_gpu import LIMITS, GpuDriven, on_gpu

    core = GpuDriven(settings, *ways)
    core.say = say

    def wrap(adapters: dict[str, object], state: ExpertState) -> None:
        on_gpu(adapters, state, core)

    return core, {"backend": "nccl", "limits": LIMITS, "wrap": wrap}
