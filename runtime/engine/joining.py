"""How an engine comes to a deployment."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from ..transport import check_address


@dataclass(frozen=True)
class Joining:
    """What an engine is told at its start: where to join, for which operation, under which id.

    It ends when the process `parent` has ended; with `keep`, so many seconds later, unless another coordinator has
    adopted it. `grace`: seconds that SIGTERM leaves for it to be removed from the deployment.
    """

    address: str
    operation: str
    engine: str
    parent: int = 0
    keep: float = 0.0
    grace: float = 60.0


def wake_address(joining: Joining) -> str:
    """Where peers wake this engine: beside the coordinator's socket, or a free port of the same host."""
    parts = urlsplit(check_address(joining.address))
    if parts.scheme == "ipc":
        return f"{joining.address.rpartition('/')[0]}/{joining.engine}.sock"
    return f"tcp://{parts.hostname}:*"
