"""Asks a running deployment over HTTP, with the standard library only."""

from __future__ import annotations

import http.client
import json
import socket
import urllib.error
import urllib.parse
import urllib.request
from typing import Any, NamedTuple

from elasticfsm.errors import ElasticError, RequestRefused

SECONDS = 10.0


class Unreachable(ElasticError):
    """Nobody answers at the URL; `sent`: a request had gone out, and may have been obeyed."""

    def __init__(self, text: str, sent: bool = False) -> None:
        super().__init__(text)
        self.sent = sent


class Unknown(ElasticError):
    """A request was sent, and nobody says what became of it."""

    exit_code = 3


class Answer(NamedTuple):
    """Status code and decoded body."""

    code: int
    body: Any

    @property
    def error(self) -> str:
        """What went wrong, in words; empty when nothing did."""
        if self.code < 400:
            return ""
        said = self.body.get("error") if isinstance(self.body, dict) else None
        return str(said["message"]) if isinstance(said, dict) else f"HTTP {self.code}"


class Client:
    """One deployment. Every call is one request and blocks; Unreachable when nobody answers within `seconds`."""

    def __init__(self, url: str, seconds: float = SECONDS) -> None:
        try:
            parts = urllib.parse.urlsplit(url)
            port, known = parts.port, parts.scheme in ("http", "https") and parts.hostname  # `port` raises, too
        except ValueError:
            port, known = None, None
        if not known or port == 0:
            raise RequestRefused(f"URL {url!r}: expected http://HOST:PORT")
        self.url = url
        self._seconds = seconds
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # this machine: no proxy

    def get(self, path: str) -> Answer:
        """GET."""
        return self._ask(urllib.request.Request(self.url + path))

    def status(self) -> dict[str, Any]:
        """Everything that is known; Unreachable when what answers there is no deployment."""
        answer = self.get("/is_scaling_elastic_ep")
        if answer.code != 200 or not isinstance(answer.body, dict) or "engines" not in answer.body:
            raise Unreachable(f"{self.url} is no deployment of ours: it answered {answer.error or 'something else'}")
        return answer.body

    def post(self, path: str, body: dict[str, Any]) -> Answer:
        """POST of a JSON object."""
        data = json.dumps(body).encode()
        return self._ask(urllib.request.Request(self.url + path, data, {"Content-Type": "application/json"}))

    def _ask(self, request: urllib.request.Request) -> Answer:
        try:
            with self._opener.open(request, timeout=self._seconds) as response:
                return Answer(response.status, _decoded(response.read()))
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, _decoded(error.read()))
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise Unreachable(
                f"{self.url} does not answer: {reason}; if the coordinator ended, engines serve on: "
                "`elasticfsm serve --resume DIRECTORY` takes them over",
                sent=request.data is not None and not isinstance(reason, (ConnectionRefusedError, socket.gaierror)),
            ) from None


def _decoded(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode(errors="replace")
