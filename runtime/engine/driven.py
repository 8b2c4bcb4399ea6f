"""The reference engine as the library drives it (hands.Core): requests come in, tokens go out, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from torch import Tensor

from elasticfsm.errors import RequestRefused

from ..deadline import Cancelled
from ..experts.placement import Placement
from ..experts.state import ExpertMemory
from ..experts.window import LoadWindow
from ..groups import Generation
from ..wire import Settings, Submit, Token
from .core import EngineCore
from .exchange import GroupExchange
from .request import Request
from .step import StepResult

Deliver = Callable[[tuple[Token, ...]], None]
GiveBack = Callable[[tuple[tuple[str, int, int, str], ...]], None]


class DrivenCore:
    """An EngineCore behind the few methods that the library needs. Main loop only; the counters may be read by any.

    `deliver` takes the tokens of a step, `give_back` requests that this engine will not run: (id, epoch, tokens so
    far, reason); an empty reason means that another engine may serve them.
    """

    def __init__(self, settings: Settings, deliver: Deliver, give_back: GiveBack) -> None:
        self.engine = self.make_engine(settings)
        config = self.engine.config
        self._memory = _Memory(
            self.engine, LoadWindow(settings.eplb_window, config.num_hidden_layers, config.num_experts)
        )
        self.settings = settings
        self.accepting = True
        self.steps = 0
        self._switches = Switches()
        self._deliver = deliver
        self._give_back = give_back

    def make_engine(self, settings: Settings) -> EngineCore:
        """The core of this kind of engine."""
        return EngineCore(settings.model, settings.slots, settings.max_tokens)

    def step(self, generation: Generation) -> StepResult:
        """One step of the core on the groups of a generation."""
        return self.engine.forward(GroupExchange(generation.ep))

    # -- for the library ---------------------------------------------------------------------------------------

    @property
    def memory(self) -> ExpertMemory:
        """Its expert slots, and the routing in front of them."""
        return self._memory

    def weights(self) -> Mapping[str, Tensor]:
        """All non-expert weights by name."""
        return self.engine.model.non_expert_tensors()

    def forward(self, generation: Generation) -> None:
        """One step of all ranks; tokens go out as soon as they are there."""
        result = self.step(generation)
        self._memory.window.add(self.engine.take_loads())
        self.steps += 1
        self._switches.stepped(generation.number)
        if result.events:
            events = result.events
            self._deliver(tuple(Token(e.request_id, e.epoch, e.index, e.token, e.finished or "") for e in events))

    def has_work(self) -> bool:
        """Whether there is an unfinished request."""
        return self.engine.has_work

    def cache_blocks(self) -> int:
        """Blocks of its cache; 0 before it has one."""
        return self.engine.cache.blocks if self.engine.cache is not None else 0

    def allocate_cache(self, blocks: int) -> None:
        """Allocate the cache, once."""
        self.engine.allocate_cache(blocks)

    def prepare(self, generation: Generation, cancelled: Cancelled) -> None:
        """Nothing to do on a CPU."""

    def hand_over(self) -> None:
        """Stop every request between two steps; from here on none is accepted and all steps are dummy steps."""
        self.accepting = False
        evicted = self.engine.scheduler.evict_all()
        if evicted:
            self._give_back(tuple((each.id, each.epoch, len(each.generated), "") for each in evicted))

    def abandon(self) -> int:
        """Drop every request between two steps, because nobody waits for its tokens; returns how many."""
        return len(self.engine.scheduler.evict_all())

    # -- for the process ---------------------------------------------------------------------------------------

    def load(self, placement: Placement, rank: int) -> None:
        """Fill weights and own expert slots from the checkpoint: engines of the first generation only."""
        self.engine.load(placement.physical_to_logical, rank)
        self.engine.allocate_cache(self.settings.kv_blocks)

    def submit(self, message: Submit) -> None:
        """Take a request, or give it back."""
        reason = ""
        if self.accepting and self.engine.cache is not None:
            try:
                self.engine.submit(_request(message))
                return
            except RequestRefused as refusal:
                reason = str(refusal)
        self._give_back(((message.request, message.epoch, len(message.generated), reason),))

    def gauges(self) -> dict[str, int]:
        """What its metrics need beyond counts: blocks of the cache, switches and the last pause."""
        pool = self.engine.scheduler.pool
        return {
            "kv_total": pool.total,
            "kv_free": pool.free,
            "switches": self._switches.count,
            "pause_us": self._switches.pause_us,
        }

    def counts(self) -> tuple[int, int]:
        """(running, waiting) requests."""
        return len(self.engine.scheduler.running), len(self.engine.scheduler.waiting)


class Switches:
    """The pause of each switch: from the end of the last step of one generation to the end of the next one's first."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.count = 0
        self.pause_us = 0
        self._clock = clock
        self._generation: int | None = None
        self._ended = 0.0

    def stepped(self, generation: int) -> None:
        """A step of this generation has ended."""
        now = self._clock()
        if self._generation not in (None, generation):
            self.count += 1
            self.pause_us = int(1e6 * (now - self._ended))
        self._generation, self._ended = generation, now


class _Memory:
    """The slots of an EngineCore, with the loads of its last steps."""

    def __init__(self, engine: EngineCore, window: LoadWindow) -> None:
        self.window = window
        self.slot_tensors = engine.slot_tensors
        self.set_routing = engine.set_routing
        self.recent_loads = window.total


def _request(message: Submit) -> Request:
    return Request(
        message.request,
        list(message.prompt),
        message.max_new_tokens,
        message.stop_tokens,
        message.epoch,
        list(message.generated),
    )
