"""A deployment of real engine processes for tests, and what must hold when it has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from elasticfsm.journal import read
from elasticfsm.runtime.deployment import Deployment, Options
from elasticfsm.runtime.engine.reference import check_tokens
from elasticfsm.runtime.engine.tokenizer import END, encode
from elasticfsm.runtime.faults.zygote import ForkingLauncher, Zygote
from elasticfsm.runtime.models import PSALTER
from elasticfsm.trace import validate

BUSY = {"eplb_interval": 10, "eplb_window": 5, "verify_experts": True, "slots": 10}  # experts move all the time
TEXTS = ("And the LORD said unto Moses, ", "def main(argv):\n    ", "Blessed is the man ", "class Server(object):\n")


class Running:
    """Starts deployments, keeps streams, and checks at the end what must hold after every test."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.streams: list[Any] = []
        self.pids: set[int] = set()
        self.deployments: list[Deployment] = []
        self.kind = Deployment

    def fork_from(self, zygote: Zygote) -> Running:
        """Engines are forked from a process that has imported everything: the same in a fraction of the time."""
        launcher = type("Launcher", (ForkingLauncher,), {"zygote": zygote})
        self.kind = type("Forked", (Deployment,), {"launchers": launcher})
        return self

    def start(self, size: int, **options: Any) -> Deployment:
        options = {"slots": 16, "eplb_interval": 60, "journal": str(self.directory)} | options
        deployment = self.kind.start(PSALTER, size, Options(**options))
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
        different = {(tuple(stream.prompt), tuple(stream.tokens)) for stream in self.streams}
        assert check_tokens(PSALTER, sorted(different)) == []

    def right(self) -> None:
        """Every token, every expert slot and every event of the last deployment is as it must be; it is closed."""
        deployment = self.deployments[-1]
        self.finish()
        self.until(lambda: any(totals(deployment, "experts_checked").values()))
        assert set(totals(deployment, "experts_wrong").values()) == {0}
        assert set(totals(deployment, "violations").values()) == {0}
        self.close()
        assert self.valid() == []

    def events(self, engine: str) -> list[dict[str, Any]]:
        """The journal of an engine."""
        return read(self.directory)[engine]

    def serve_until(self, ask: Callable[[], object], seconds: float = 30.0) -> None:
        """Keep four requests running until something holds."""

        def asked() -> object:
            open_ = sum(not stream.outcome for stream in self.streams)
            if open_ < 4:
                self.request(4 - open_)
            return ask()

        self.until(asked, seconds)

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


def totals(deployment: Deployment, name: str) -> dict[str, int]:
    """What every engine last counted under a name, also those that have ended."""
    return {engine: counters.get(name, 0) for engine, counters in deployment.counters.items()}


def gone(pid: int, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()
