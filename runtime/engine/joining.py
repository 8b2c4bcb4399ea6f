"""How an engine comes to a deployment."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from elasticfsm.errors import DeadlineExpired, RequestRefused

from .. import wire
from ..naming import refuse_id

WELCOME_SECONDS = 60.0
ASK_AGAIN_SECONDS = 1.0


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

    def __post_init__(self) -> None:
        refuse_id("operation", self.operation)
        refuse_id("engine", self.engine)


def greet(
    hello: Callable[[], None], mail: queue.SimpleQueue[wire.Mail], ending: threading.Event, address: str
) -> wire.Welcome | None:
    """Say hello until welcomed; None when told to end.

    RequestRefused when turned away for good, DeadlineExpired when nobody wanted us in time.
    """
    limit = time.monotonic() + WELCOME_SECONDS
    reason = "nobody answered"
    while not ending.is_set():
        if time.monotonic() > limit:
            raise DeadlineExpired(f"{address}: not welcomed within {WELCOME_SECONDS:g} s: {reason}")
        hello()
        try:
            answer = mail.get(timeout=ASK_AGAIN_SECONDS)
        except queue.Empty:
            continue
        if isinstance(answer, wire.Welcome):
            return answer
        if isinstance(answer, wire.Turned):
            reason = answer.reason
            if answer.final:
                raise RequestRefused(reason)
            ending.wait(ASK_AGAIN_SECONDS)
    return None
