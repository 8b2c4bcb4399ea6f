"""A deployment with its HTTP routes in this process, and what its tests wait for."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from elasticfsm.runtime.deployment import Deployment
from elasticfsm.runtime.service.app import make
from elasticfsm.runtime.service.client import Client
from elasticfsm.runtime.service.metrics import Metrics
from elasticfsm.runtime.service.server import Server


class Served:
    """A deployment, its server and a client of it."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.metrics = Metrics(deployment)
        self.server = Server("127.0.0.1:0")
        self.server.start(make(deployment, self.metrics))
        self.client = Client(self.server.url, 60.0)

    def scale(self, size: int, **body: Any) -> Any:
        return self.client.post("/scale_elastic_ep", {"new_data_parallel_size": size} | body)

    def status(self) -> Any:
        return self.client.get("/is_scaling_elastic_ep").body

    def raw(
        self, method: str, path: str, body: bytes | Iterator[bytes] = b"", **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection(self.server.url.removeprefix("http://"), timeout=30)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            text = answer.read().decode()
            return answer.status, json.loads(text) if text.startswith("{") else text, dict(answer.headers)
        finally:
            connection.close()

    def metric(self, line: str) -> float:
        found = [each for each in self.client.get("/metrics").body.splitlines() if each.startswith(line + " ")]
        assert len(found) == 1, line
        return float(found[0].rpartition(" ")[2])


def until(ask: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not ask():
        assert time.monotonic() < end
        time.sleep(0.02)


def gone(pid: int, seconds: float = 15.0) -> bool:
    end = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.02)
    return not Path(f"/proc/{pid}").exists()
