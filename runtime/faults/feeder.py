"""Requests all the time, a few at once, each of a known text: what every answer must be was computed once before."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from elasticfsm.errors import ElasticError

from ..demo.workload import prompts
from ..engine.tokenizer import encode
from ..router import Stream

LENGTH = 24  # tokens of an answer
COUNT = 8  # different texts


def questions() -> list[tuple[int, ...]]:
    """The texts, as tokens."""
    both = [text for each in prompts().values() for text in each[: COUNT // 2]]
    return [tuple(encode(text))[:32] for text in both]


class Feeder:
    """Clients in a closed loop from `start` to `stop`; `streams` are all requests that were taken."""

    def __init__(self, deployment: object, asked: Sequence[tuple[int, ...]], clients: int = 3) -> None:
        self.streams: list[Stream] = []
        self._deployment = deployment
        self._asked = asked
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._loop, args=(n,), daemon=True) for n in range(clients)]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def ask(self, number: int) -> Stream:
        """Send one request."""
        asked = self._asked[number % len(self._asked)]
        stream: Stream = self._deployment.submit(asked, LENGTH)  # type: ignore[attr-defined]
        self.streams.append(stream)
        return stream

    def stop(self, within: float) -> list[str]:
        """Send nothing more, wait for what runs; returns complaints about requests without an outcome."""
        self._stopping.set()
        end = time.monotonic() + within
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, end - time.monotonic()))
        for stream in self.streams:
            with stream.changed:
                stream.changed.wait_for(lambda s=stream: s.outcome, max(0.0, end - time.monotonic()))  # type: ignore[misc]
        return [
            f"request {stream.id} on {stream.owner or 'nobody'} has {len(stream.tokens)} tokens and no outcome"
            for stream in self.streams
            if not stream.outcome
        ]

    def _loop(self, number: int) -> None:
        while not self._stopping.is_set():
            try:
                stream = self.ask(number)
                while not stream.outcome and not self._stopping.is_set():
                    with stream.changed:
                        stream.changed.wait_for(lambda s=stream: s.outcome, 0.2)  # type: ignore[misc]
                stream.wait(15)
            except ElasticError:
                return
            number += 3
