"""Continuous batching: which tokens of which requests enter the next step, and what came out of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from elasticfsm.errors import RequestRefused

from .kv_cache import BlockPool
from .request import Request, TokenEvent


@dataclass(frozen=True)
class Chunk:
    """COUNT tokens of a request, from token START on, that enter one step; the last one is sampled if SAMPLES."""

    request: Request
    start: int
    count: int

    @property
    def samples(self) -> bool:
        """Whether the request is fully cached after this chunk, so that its next token can be sampled."""
        return self.start + self.count == self.request.length

    @property
    def positions(self) -> range:
        """Positions of the chunk's tokens in the text."""
        return range(self.start, self.start + self.count)

    @property
    def tokens(self) -> list[int]:
        """Ids of the chunk's tokens."""
        return self.request.tokens[self.start : self.start + self.count]


@dataclass
class Counters:
    """What happened to requests since the engine started."""

    admitted: int = 0
    preempted: int = 0
    refused: int = 0
    finished: int = 0


class Scheduler:
    """The requests of one engine; a request is in `waiting` or in `running` (oldest first), or has left.

    Nothing that `schedule` does is visible in a request's tokens: a step that failed can be scheduled again.
    Not thread-safe: called from the main loop only.
    """

    def __init__(self, pool: BlockPool, max_tokens: int, max_context: int, vocab_size: int) -> None:
        self.pool = pool
        self.max_tokens, self.max_context, self.vocab_size = max_tokens, max_context, vocab_size
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.counters = Counters()

    @property
    def has_work(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self.waiting or self.running)

    def add(self, request: Request) -> None:
        """Queue REQUEST, new or handed over; raises RequestRefused with the reason when it can never be served."""
        reason = self.refusal(request)
        if reason:
            self.counters.refused += 1
            raise RequestRefused(f"request {request.id}: {reason}")
        request.blocks, request.computed = [], 0
        self.waiting.append(request)

    def refusal(self, request: Request) -> str | None:
        """Why REQUEST can never be served here, or None."""
        room = min(self.max_context, self.pool.total * self.pool.block_size)
        if self.find(request.id):
            return "an unfinished request has the same id; ids must be unique"
        if not request.prompt:
            return "the prompt is empty; give at least one token"
        if request.finished:
            return f"nothing left to generate ({len(request.generated)} of {request.max_new_tokens} tokens are there)"
        if request.longest > room:
            return (
                f"prompt of {len(request.prompt)} + {request.max_new_tokens} new tokens exceeds {room} "
                f"(context {self.max_context}, cache {self.pool.total * self.pool.block_size}); ask for fewer"
            )
        outside = [token for token in request.tokens if not 0 <= token < self.vocab_size]
        return f"token {outside[0]} is outside the vocabulary of {self.vocab_size}" if outside else None

    def find(self, request_id: str) -> Request | None:
        """The unfinished request of that id, if it is here."""
        return next((one for one in (*self.running, *self.waiting) if one.id == request_id), None)

    def schedule(self) -> list[Chunk]:
        """Choose at most max_tokens tokens: one for each decoding request, then prompt chunks, then new requests.

        Chunks of one token come first (batch.py relies on it); empty when there is no work, which makes a dummy step.
        """
        chunks: list[Chunk] = []
        budget, preempted = self.max_tokens, self.counters.preempted
        for request in sorted(self.running, key=lambda request: request.length - request.computed > 1):
            budget -= self._take(request, budget, chunks)
        # Blocks freed by a preemption belong to the requests that run; admitting in the same step would thrash.
        while budget and preempted == self.counters.preempted and self._admit():
            budget -= self._take(self.running[-1], budget, chunks)
        kept = [chunk for chunk in chunks if chunk.request in self.running]
        return sorted(kept, key=lambda chunk: chunk.count > 1)

    def commit(self, chunks: Sequence[Chunk], sampled: Sequence[int]) -> list[TokenEvent]:
        """Record a completed step: SAMPLED holds one token for each of CHUNKS that samples, in their order."""
        for chunk in chunks:
            chunk.request.computed = chunk.start + chunk.count
        samplers = [chunk.request for chunk in chunks if chunk.request.computed == chunk.request.length]
        return [self._append(request, token) for request, token in zip(samplers, sampled, strict=True)]

    def stop_request(self, request_id: str) -> Request | None:
        """Take one request out, with its tokens so far, e.g. to hand it to another engine; None if it is not here."""
        request = self.find(request_id)
        if request is not None:
            self._remove(request)
        return request

    def evict_all(self) -> list[Request]:
        """Take all unfinished requests out, with their tokens so far, oldest first."""
        evicted = [*self.running, *self.waiting]
        for request in evicted:
            self._remove(request)
        return evicted

    def _admit(self) -> bool:
        """Start the first waiting request if its tokens and one more fit into free blocks."""
        if not self.waiting or len(self.running) >= self.max_tokens:
            return False
        request = self.waiting[0]
        if not self.pool.grow(request.blocks, min(request.length + 1, request.longest)):
            return False
        self.running.append(self.waiting.popleft())
        self.counters.admitted += 1
        return True

    def _take(self, request: Request, budget: int, chunks: list[Chunk]) -> int:
        """Append REQUEST's next chunk and return its size; 0 when no budget is left or the request was preempted."""
        count = min(request.length - request.computed, budget)
        if request not in self.running or not count:
            return 0
        while not self.pool.grow(request.blocks, request.computed + count):
            youngest = self.running[-1]
            self._preempt(youngest)
            if youngest is request:
                return 0
        chunks.append(Chunk(request, request.computed, count))
        return count

    def _preempt(self, request: Request) -> None:
        """Put REQUEST back to the head of the queue; its keys are computed again later.

        The oldest request is preempted only when it runs alone, and alone it fits: some request always advances.
        """
        self.running.remove(request)
        self.pool.release(request.blocks)
        request.computed = 0
        self.waiting.appendleft(request)
        self.counters.preempted += 1

    def _append(self, request: Request, token: int) -> TokenEvent:
        request.generated.append(token)
        finished = request.finished
        if finished:
            self._remove(request)
            self.counters.finished += 1
        return TokenEvent(request.id, request.epoch, len(request.generated) - 1, token, finished)

    def _remove(self, request: Request) -> None:
        if request in self.running:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self.pool.release(request.blocks)
        request.computed = 0
