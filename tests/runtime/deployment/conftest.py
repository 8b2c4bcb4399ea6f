"""A deployment of real engine processes that is gone after the test, whatever happened."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticfsm.runtime.deployment import Deployment, Options
from elasticfsm.runtime.engine.reference import check_tokens
from elasticfsm.runtime.engine.tokenizer import END, encode
from elasticfsm.runtime.models import PSALTER
from elasticfsm.trace import validate

TEXTS = ("And the LORD said unto Moses, ", "def main(argv):\n    ", "Blessed is the man ", "class Server(object):\n")


class Running:
    """Starts deployments, keeps streams, and checks at the end what must hold after every test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.streams: list[Any] = []
        self.pids: set[int] = set()
        self.deployments: list[Deployment] = []

    def start(self, size: int, **options: Any) -> Deployment:
        options = {"slots": 16, "eplb_interval": 60, "journal": str(self.directory)} | options
        deployment = Deployment.start(PSALTER, size, Options(**options))
        self.deployments.append(deployment)
        return deployment

    def request(self, count: int, length: int = 60) -> list[Any]:
        deployment = self.deployments[-1]
        made = [deployment.submit(encode(TEXTS[n % len(TEXTS)]), length, (END,)) for n in range(count)]
        self.streams += made
        return made

    def finish(self) -> None:
        """Wait for every request and compare its tokens with transformers' own."""
        assert {stream.wait(60) for stream in self.streams} == {"finished"}
        assert check_tokens(PSALTER, [(stream.prompt, stream.tokens) for stream in self.streams]) == []

    @staticmethod
    def until(ask: Callable[[], object], seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not ask():
            assert time.monotonic() < end
            time.sleep(0.01)

    def close(self) -> None:
        for deployment in self.deployments:
            self.pids |= set(deployment.status().pids.values())
            deployment.close()

    def valid(self) -> list[str]:
        return [str(finding) for finding in validate(self.directory)]


def gone(pid: int, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path)
    try:
        yield made
    finally:
        made.close()
        assert all(gone(pid) for pid in made.pids)
