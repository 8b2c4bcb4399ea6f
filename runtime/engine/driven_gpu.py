"""The reference engine on a GPU as the library drives it: streams by thread, graphs by generation."""

from __future__ import annotations

import faulthandler
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from ..creation import Limits
from ..deadline import Cancelled, Deadline
from ..experts.slots import Lanes, in_slots
from ..experts.state import ExpertState
from ..groups import Generation
from ..streams import PerThread, own_stream
from ..wire import Settings
from .core import EngineCore
from .driven import DrivenCore
from .on_gpu import GpuCore
from .step import StepResult

STEP_SECONDS = 60.0
ROWS_SECONDS = 120.0  # for a plan under way to come to its end
MEMORY = "memory in MiB:"  # how such a line begins in the journal
LIMITS = Limits(connect=60.0)  # a communicator of engines that share a GPU takes seconds
SWITCH_INTERVAL = 0.0005  # seconds after which a thread that captures lets the main loop have the interpreter
BESIDE = ("weights", "cache", "rehearsal", "graphs", "experts", "placement", "groups")  # adapters of other threads


class GpuDriven(DrivenCore):
    """DrivenCore in VRAM. The main loop has a stream of its own: the default stream would wait for all others."""

    def __init__(self, *args: Any) -> None:
        torch.cuda.init()  # type: ignore[no-untyped-call]
        faulthandler.register(signal.SIGUSR1)  # the stacks of all threads, for whoever asks why an engine is stuck
        self.say: Callable[[str], None] = lambda text: None
        self.moving: Callable[[], bool] = lambda: False  # rows, by the device
        self.stream = own_stream()
        torch.cuda.set_stream(self.stream)
        sys.setswitchinterval(SWITCH_INTERVAL)
        super().__init__(*args)

    def make_engine(self, settings: Settings) -> EngineCore:
        """A core in VRAM."""
        graphs = os.environ.get("ELASTICFSM_GRAPHS", "1") != "0"
        dtype = getattr(torch, settings.dtype)
        return GpuCore(settings.model, settings.slots, settings.max_tokens, dtype=dtype, graphs=graphs)

    def step(self, generation: Generation) -> StepResult:
        """Replayed when all requests decode, else eager."""
        engine = self.engine
        if not isinstance(engine, GpuCore):
            return super().step(generation)
        return engine.step(generation, STEP_SECONDS)

    def prepare(self, generation: Generation, cancelled: Cancelled) -> None:
        """Capture the graphs of a generation that is not active yet, when no rows are moved by the device any more.

        Raises DeadlineExpired when they do not end.
        """
        if isinstance(self.engine, GpuCore):
            deadline = Deadline(ROWS_SECONDS, "the capture waits for rows that the device moves", cancelled)
            while self.moving():
                time.sleep(deadline.slice(0.005))
            self.engine.prepare(generation, cancelled)
            self.say(f"{MEMORY} generation {generation.number}, {memory_in_use()}")


def memory_in_use() -> str:
    """What torch holds in this process and what is in use on its GPU by everybody, in MiB."""
    free, total = torch.cuda.mem_get_info()
    held = (torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), total - free)
    return "allocated {}, reserved {}, device {}".format(*(number >> 20 for number in held))


class OnOwnStream:
    """An adapter whose methods, when called beside the main loop, run on a stream of the calling thread.

    It begins behind what the main loop has queued so far (rows that were just stored, say), and a method returns
    only when the device has done its part: whoever hears that a step has ended may rely on its bytes.
    """

    def __init__(self, adapter: object, main: Any, streams: PerThread) -> None:
        self._adapter = adapter
        self._main = main
        self._home = threading.get_ident()
        self._streams = streams

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._adapter, name)
        return self._wrapped(found) if callable(found) else found

    def _wrapped(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(*args: Any, **keywords: Any) -> Any:
            if threading.get_ident() == self._home:
                return method(*args, **keywords)
            stream = self._streams.get()
            stream.wait_stream(self._main)
            with torch.cuda.stream(stream):
                try:
                    return method(*args, **keywords)
                finally:
                    stream.synchronize()

        return call


def on_gpu(adapters: dict[str, object], state: ExpertState, core: GpuDriven) -> None:
    """Wrap adapters in place: rows are posted in slots, and what runs beside the main loop has streams of its own."""
    streams = PerThread()
    lanes = Lanes(state, core.settings.transfer, core.say)
    core.moving = lanes.moving
    in_slots(adapters, lanes)
    for name in BESIDE:
        if name in adapters:
            adapters[name] = OnOwnStream(adapters[name], core.stream, streams)
