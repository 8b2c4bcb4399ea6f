"""The router: which engine owns a request, and the one record of it from which a hand-over can start again.

A request's record (prompt and the tokens delivered so far) lives here and nowhere else. Every assignment has an owner
epoch; a token counts only if it carries the current epoch and the next index. So a late token of a former owner, or
one that comes twice, is dropped and counted, and each request ends with exactly one outcome.
"""

from __future__ import annotations

import operator
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from elasticfsm.errors import DeadlineExpired, RequestRefused

from .wire import Submit, Token

Outcome = Literal["", "finished", "failed"]
Send = Callable[[str, Submit], None]

_TOKENS = 1 << 31  # token ids and counts are smaller: engines keep them in 32 bits or more


@dataclass(eq=False)
class Stream:
    """A request and what came back: `tokens` with their arrival `times` (monotonic seconds), then one `outcome`."""

    id: str
    prompt: tuple[int, ...]
    max_new_tokens: int
    stop_tokens: tuple[int, ...] = ()
    owner: str = ""
    epoch: int = 0
    handovers: int = 0
    tokens: list[int] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    submitted: float = 0.0
    outcome: Outcome = ""
    reason: str = ""
    listeners: list[Callable[[], None]] = field(default_factory=list, repr=False)
    changed: threading.Condition = field(default_factory=threading.Condition, repr=False)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call this, from another thread, whenever tokens or the outcome have come; it must not block."""
        with self.changed:
            self.listeners.append(listener)
        listener()

    def wait(self, within: float) -> Outcome:
        """Block until the request has its outcome; DeadlineExpired after `within` seconds."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.outcome, within):
                raise DeadlineExpired(f"request {self.id} had {len(self.tokens)} tokens after {within:g} s, no outcome")
        return self.outcome

    def stream(self, within: float) -> Iterator[int]:
        """Yield tokens as they come; DeadlineExpired when the next one takes longer than `within` seconds."""
        index = 0
        while True:
            with self.changed:
                if not self.changed.wait_for(lambda: len(self.tokens) > index or self.outcome, within):  # noqa: B023
                    raise DeadlineExpired(f"request {self.id}: token {index} did not come within {within:g} s")
                fresh = self.tokens[index:]
                ended = bool(self.outcome)
            yield from fresh
            index += len(fresh)
            if ended:
                return

    def _append(self, token: int, now: float) -> None:
        with self.changed:
            self.tokens.append(token)
            self.times.append(now)
            self._tell()

    def _end(self, outcome: Outcome, reason: str) -> None:
        with self.changed:
            self.outcome, self.reason = outcome, reason
            self._tell()

    def _tell(self) -> None:
        self.changed.notify_all()
        for listener in self.listeners:
            listener()


class Router:
    """Assigns requests to the admitted engine with the fewest of them; may be called from any thread, never blocks."""

    def __init__(self, send: Send, clock: Callable[[], float] = time.monotonic) -> None:
        self.dropped: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.handovers = 0
        self.prompted: Counter[str] = Counter()  # tokens by engine id
        self.generated: Counter[str] = Counter()
        self.ended: Callable[[Stream], None] = _nobody  # hears of every request that ends; must not block
        self._send = send
        self._clock = clock
        self._admitted: list[str] = []
        self._open: dict[str, Stream] = {}
        self._unassigned: deque[Stream] = deque()
        self._known: set[str] = set()
        self._sent = 0
        self._closed = ""
        self._lock = threading.RLock()

    # -- clients -----------------------------------------------------------------------------------------------

    def submit(
        self, prompt: Iterable[int], max_new_tokens: int, stop_tokens: Iterable[int] = (), request: str = ""
    ) -> Stream:
        """Take a request; without an admitted engine it waits.

        RequestRefused when it is empty, its id is known, or tokens and their number are not integers of 0 or more.
        """
        whole, most = _integers("prompt", prompt), _integer("max_new_tokens", max_new_tokens)
        stops = _integers("stop_tokens", stop_tokens)
        if not isinstance(request, str):
            raise RequestRefused(f"the id of a request is {request!r}; expected a text")
        with self._lock:
            self._sent += 1
            stream = Stream(request or f"r{self._sent}", whole, most, stops)
            self._refuse(stream)
            stream.submitted = self._clock()
            self._known.add(stream.id)
            self._open[stream.id] = stream
            self._assign(stream)
        return stream

    def _refuse(self, stream: Stream) -> None:
        if self._closed:
            raise RequestRefused(f"request {stream.id}: the deployment has ended ({self._closed})")
        if stream.id in self._known:
            raise RequestRefused(f"request {stream.id}: the id was used before; ids are unique")
        if not stream.prompt or stream.max_new_tokens < 1:
            raise RequestRefused(
                f"request {stream.id}: {len(stream.prompt)} prompt and {stream.max_new_tokens} new tokens; "
                "give at least one of each"
            )

    # -- engines -----------------------------------------------------------------------------------------------

    def tokens(self, engine: str, tokens: Iterable[Token]) -> None:
        """Take what an engine generated."""
        with self._lock:
            for token in tokens:
                stream = self._current(engine, token.request, token.epoch)
                if stream is not None and token.index != len(stream.tokens):
                    self.dropped["index"] += 1
                elif stream is not None:
                    stream._append(token.token, self._clock())
                    self.generated[engine] += 1
                    if token.done:
                        self._finish(stream, "finished", token.done)

    def stopped(self, engine: str, request: str, epoch: int, reason: str = "") -> None:
        """An engine gave a request up: it is queued anew under the next epoch, or failed if a reason is given."""
        with self._lock:
            stream = self._current(engine, request, epoch)
            if stream is None:
                return
            if reason:
                self._finish(stream, "failed", reason)
            else:
                self._hand_over(stream)

    def _current(self, engine: str, request: str, epoch: int) -> Stream | None:
        stream = self._open.get(request)
        if stream is None:
            self.dropped["ended" if request in self._known else "unknown"] += 1
        elif (stream.owner, stream.epoch) != (engine, epoch):
            self.dropped["epoch"] += 1
        else:
            return stream
        return None

    # -- the coordinator ---------------------------------------------------------------------------------------

    def admit(self, engines: Iterable[str]) -> None:
        """From now on these engines get requests."""
        with self._lock:
            self._admitted += [engine for engine in engines if engine not in self._admitted]
            while self._unassigned and self._admitted:
                self._assign(self._unassigned.popleft())

    def retire(self, engines: Iterable[str]) -> None:
        """From now on these engines get no new request; what they run goes on."""
        with self._lock:
            gone = set(engines)
            self._admitted = [engine for engine in self._admitted if engine not in gone]

    def lost(self, engines: Iterable[str]) -> None:
        """These engines are gone: their requests go to others from the record."""
        gone = set(engines)
        with self._lock:
            self.retire(gone)
            for stream in [stream for stream in self._open.values() if stream.owner in gone]:
                self._hand_over(stream)

    def void(self, count: int) -> None:
        """So many requests of a former router were given up by their engines."""
        with self._lock:
            self.outcomes["failed"] += count

    def shut(self, reason: str) -> None:
        """Refuse what comes; what is open goes on."""
        with self._lock:
            self._closed = self._closed or reason

    def close(self, reason: str) -> None:
        """Fail everything that is open and refuse what comes."""
        with self._lock:
            self._closed = reason
            for stream in list(self._open.values()):
                self._finish(stream, "failed", reason)

    # -- looking -----------------------------------------------------------------------------------------------

    @property
    def closed(self) -> str:
        """Why no request is taken any more; empty while they are."""
        return self._closed

    @property
    def admitted(self) -> tuple[str, ...]:
        """The engines that get requests."""
        return tuple(self._admitted)

    def load(self) -> dict[str, int]:
        """Open requests by owner; "" for those without one."""
        with self._lock:
            return dict(Counter(stream.owner for stream in self._open.values()))

    # -- inside ------------------------------------------------------------------------------------------------

    def _assign(self, stream: Stream) -> None:
        if not self._admitted:
            stream.owner = ""
            self._unassigned.append(stream)
            return
        load = self.load()
        stream.owner = min(self._admitted, key=lambda engine: load.get(engine, 0))
        stream.epoch += 1
        self.prompted[stream.owner] += len(stream.prompt)
        self._send(
            stream.owner,
            Submit(
                request=stream.id,
                epoch=stream.epoch,
                prompt=stream.prompt,
                max_new_tokens=stream.max_new_tokens,
                stop_tokens=stream.stop_tokens,
                generated=tuple(stream.tokens),
            ),
        )

    def _hand_over(self, stream: Stream) -> None:
        stream.handovers += 1
        self.handovers += 1
        stream.owner, stream.epoch = "", stream.epoch + 1  # the old owner's words count no more from here on
        self._assign(stream)

    def _finish(self, stream: Stream, outcome: Outcome, reason: str) -> None:
        del self._open[stream.id]
        if stream in self._unassigned:
            self._unassigned.remove(stream)
        self.outcomes[outcome] += 1
        stream._end(outcome, reason)
        self.ended(stream)


def _nobody(stream: Stream) -> None:
    """Where the end of a request is told when nobody asked for it."""


def _integers(name: str, values: Any) -> tuple[int, ...]:
    try:
        return tuple(_integer(f"{name}[{index}]", value) for index, value in enumerate(values))
    except TypeError:
        raise RequestRefused(f"{name} is {_short(values)}; expected a list of token ids") from None


def _integer(name: str, value: Any) -> int:
    """A plain int of whatever counts as one (also NumPy's): nothing else can be sent to an engine."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if not 0 <= number < _TOKENS:
        raise RequestRefused(f"{name} is {_short(value)}; expected an integer of 0 or more, below {_TOKENS}")
    return number


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
