"""A steady stream of real prompts: clients that each send the next request when the last one is finished."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Sequence
from importlib.resources import files

from elasticfsm.errors import ElasticError

from ..engine.tokenizer import END, encode
from ..router import Stream

DOMAINS = ("scripture", "code")

Submit = Callable[[Sequence[int], int, Sequence[int]], Stream]


def prompts() -> dict[str, list[str]]:
    """The shipped prompts by domain."""
    found: dict[str, list[str]] = {domain: [] for domain in DOMAINS}
    for line in files(__package__).joinpath("prompts.txt").read_text(encoding="utf-8").splitlines():
        domain, separator, text = line.partition(": ")
        if separator and domain in found:
            found[domain].append(text.replace("\\n", "\n"))
    return found


class Workload:
    """`clients` threads in a closed loop, each with requests of 40 to 120 new tokens; `shift` changes the domain."""

    def __init__(
        self, submit: Submit, clients: int, limit: int, vocab: int, within: float = 120.0, seed: int = 0
    ) -> None:
        self.streams: list[Stream] = []
        self.errors: list[str] = []
        self._submit = submit
        self._limit = limit
        self._vocab = vocab
        self._within = within
        self._prompts = prompts()
        self._share = 0.1  # of requests that are code
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._client, name=f"client {n}", daemon=True) for n in range(clients)]

    def start(self) -> None:
        """Let the clients begin."""
        for thread in self._threads:
            thread.start()

    def shift(self, share: float) -> None:
        """From now on this share of new requests is code."""
        self._share = share

    def stop(self, within: float = 120.0) -> None:
        """No new requests; blocks until the running ones have ended."""
        self._stopping.set()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(within)

    def _client(self) -> None:
        while not self._stopping.is_set():
            try:
                stream = self._next()
                stream.wait(self._within)
            except ElasticError as error:
                with self._lock:
                    self.errors.append(str(error))
                return

    def _next(self) -> Stream:
        with self._lock:
            domain = DOMAINS[self._random.random() < self._share]
            text = self._random.choice(self._prompts[domain])
            length = self._random.randint(40, 120)
            tokens = [token % self._vocab for token in encode(text)][: max(1, self._limit - length)]
            stream = self._submit(tokens, length, (END,))
            self.streams.append(stream)
        return stream
