"""Where offers are published: a few keys of one operation, in the store that the groups of that operation use."""

from __future__ import annotations

from base64 import b64decode, b64encode
from typing import Protocol

from ..store import StoreClient


class Board(Protocol):
    """Keys that every engine of one operation sees. No method waits; all raise GroupError when the store is gone."""

    def set(self, key: str, value: bytes) -> None:
        """Publish a value."""
        ...

    def get(self, key: str) -> bytes | None:
        """Return the value, None while there is none."""
        ...

    def clear(self, prefix: str) -> None:
        """Remove every key under `prefix`/; harmless when there is none."""
        ...


class StoreBoard:
    """The Board of one operation in the rendezvous store; for one thread, like its client."""

    def __init__(self, client: StoreClient, operation: str) -> None:
        self._client = client
        self._operation = operation

    def set(self, key: str, value: bytes) -> None:
        """See Board.set; the store holds text, so bytes travel as base64."""
        self._client.set(f"{self._operation}/{key}", b64encode(value).decode())

    def get(self, key: str) -> bytes | None:
        """See Board.get."""
        full = f"{self._operation}/{key}"
        return b64decode(self._client.wait(full, 1.0)) if self._client.has(full) else None

    def clear(self, prefix: str) -> None:
        """See Board.clear."""
        self._client.delete(f"{self._operation}/{prefix}")
