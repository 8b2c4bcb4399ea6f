"""Engines that asked to be removed: each joins the operation that removes it, or they get one of their own."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING

from elasticfsm.errors import RequestRefused

from .. import wire

if TYPE_CHECKING:
    from .facade import Deployment

AGAIN = 1.0  # seconds until an operation that was undone is tried again

log = logging.getLogger(__name__)


class Retirements:
    """Who asked, and until when it wants to be removed (monotonic seconds). `ask` from any thread, `tick` from one."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        self._again = 0.0
        self._lock = threading.Lock()

    def ask(self, engine: str, within: float) -> None:
        """An engine wants to leave within so many seconds; the same engine again changes nothing."""
        with self._lock:
            self._until.setdefault(engine, time.monotonic() + within)
        log.info("asks to be removed", extra={"engine": engine})

    @property
    def waiting(self) -> tuple[str, ...]:
        """Engines that have asked and still serve."""
        with self._lock:
            return tuple(self._until)

    def tick(self, deployment: Deployment) -> None:
        """Begin an operation for those that wait, if none runs; whoever is no member any more has got its wish.

        When everything ends, everybody is told to: nobody is removed any more, and nobody stays.
        """
        if deployment._closed or (deployment.router.closed and not deployment.failed):
            return
        now = time.monotonic()
        with self._lock:
            self._until = {engine: until for engine, until in self._until.items() if engine in deployment.members}
            until = dict(self._until)
        if not until or deployment.operations.running is not None or now < self._again:
            return
        self._again = now + AGAIN
        late = [engine for engine, moment in until.items() if moment < now]
        self._refuse(deployment, late, "it could not be removed within its grace period")
        leaving = [engine for engine in until if engine not in late]
        if not leaving:
            return
        left = min(until[engine] for engine in leaving) - now
        try:
            deployment.scale(
                len(deployment.members) - len(leaving), leaving, timeouts={"prepare": max(1.0, left)}, urgent=True
            )
        except RequestRefused as refusal:
            self._refuse(deployment, leaving, str(refusal))

    def _refuse(self, deployment: Deployment, engines: list[str], reason: str) -> None:
        for engine in engines:
            log.warning("stays", extra={"engine": engine, "error": reason})
            turned = wire.Turned(sender=wire.COORDINATOR, instance=deployment.instance, reason=reason, final=False)
            deployment.roster.send(engine, turned)
            with self._lock:
                self._until.pop(engine, None)


def dismiss(deployment: Deployment, engine: str) -> bool:
    """See Deployment.dismiss."""
    member = deployment.roster.get(engine)
    if member is None or not member.retired or member.dead:
        return False
    deployment.roster.send(engine, wire.Exit(sender=wire.COORDINATOR, instance=deployment.instance))
    deployment.roster.stop([engine])
    return True
