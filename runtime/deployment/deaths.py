"""Engines that end without being asked to: how it is noticed, and what follows."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from .. import wire
from ..adopted import adopt
from ..transport import remove_socket, wake_address

if TYPE_CHECKING:
    from .facade import Deployment

SILENCE = 15.0  # seconds without a heartbeat after which an engine is declared dead, and killed
LEAST = 3.0  # a machine that is busy may delay any heartbeat as long, whatever the scale of other limits
MEANWHILE = 1.0  # seconds until the end of a process is noticed for certain
HELLO = 60.0  # seconds that an engine of ours has from its start to its hello

log = logging.getLogger(__name__)


def watch(deployment: Deployment) -> None:
    """Look at processes and heartbeats."""
    launcher = deployment._launcher
    exited = launcher.exited().items()
    for engine, status in sorted(exited, key=lambda each: each[1] >= 0):  # who was killed is the cause, and named first
        bury(deployment, engine, launcher.obituary(engine, status))
    silence = max(LEAST, SILENCE * deployment.options.timescale)
    hello = HELLO * deployment.options.timescale
    for engine in deployment.roster.silent(silence):
        limit = max(silence, hello) if _starts(deployment, engine) else silence
        if engine in deployment.roster.silent(limit):
            bury(deployment, engine, f"it was silent for {limit:g} s")
    for engine in deployment.roster.late(hello):
        if launcher.pid(engine) is not None:  # one that somebody else starts may come as late as the operation allows
            bury(deployment, engine, f"it did not announce itself within {hello:g} s")
    _fail_for_the_dead(deployment)
    if deployment.failed and not deployment.roster.lives(deployment.members):
        conclude(deployment)


def _starts(deployment: Deployment, engine: str) -> bool:
    """Whether an engine still loads what it needs: native libraries may hold up all its threads while they do that."""
    member = deployment.roster.get(engine)
    return member is not None and (member.status is None or member.status.role == "starting")


def bury(deployment: Deployment, engine: str, reason: str) -> None:
    """Declared dead means killed: its process is gone before its id, rank or memory is used again."""
    member = deployment.roster.get(engine)
    if member is not None and member.retired:  # whoever started it has ended it, as they may
        deployment.roster.stop([engine])
        return
    if not deployment.roster.bury(engine, reason):
        return
    _kill(deployment, engine)
    deployment._journal.put("dead", "", source=engine, error=reason)
    log.warning("declared dead", extra={"engine": engine, "error": reason})
    remove_socket((member.wake if member is not None else "") or wake_address(deployment.address, engine))
    for each in deployment.roster.living():
        deployment.roster.send(each.engine, wire.Dead(sender=wire.COORDINATOR, engine=engine))
    coordinator = deployment._coordinator
    if coordinator is not None and not coordinator.operation.ended:
        coordinator.died(engine, reason)
    deployment.deaths[engine] = reason
    _fail_for_the_dead(deployment)


def _fail_for_the_dead(deployment: Deployment) -> None:
    """Dead members end the deployment, unless they were leaving and the operation goes on without them."""
    coordinator = deployment._coordinator
    dead = [engine for engine in deployment.deaths if engine in deployment.members]
    spared = [engine for engine in dead if coordinator is not None and coordinator.spares(engine)]
    deployment.router.lost(spared)
    left = [engine for engine in dead if coordinator is not None and engine in coordinator.change.removing]
    if deployment.failed or dead == spared or (dead == left and _just_failed(deployment)):
        return
    named = [engine for engine in dead if engine not in left] + [engine for engine in left if engine not in spared]
    deployment._fail("; ".join(f"serving engine {engine} died: {deployment.deaths[engine]}" for engine in named))


def _just_failed(deployment: Deployment) -> bool:
    """Whether an operation that went on without a dead engine has failed a moment ago: why is still to be noticed."""
    coordinator = deployment._coordinator
    record = coordinator.operation.record if coordinator is not None else None
    return record is not None and record.phase == "failed" and time.time() - record.ended < MEANWHILE


def _kill(deployment: Deployment, engine: str) -> None:
    """End its process, also one that somebody else started on this machine, if it is surely that engine's."""
    deployment._launcher.kill(engine)
    member = deployment.roster.get(engine)
    if deployment._launcher.pid(engine) is None and member is not None and member.pid:
        stranger = adopt(member.pid, engine)
        if stranger is not None:
            stranger.kill()
            stranger.close()


def conclude(deployment: Deployment) -> None:
    """Nobody can answer the coordinator any more: the operation that runs has failed."""
    running = deployment.operations.current
    if running is not None and not running.ended:
        running.failed(deployment.failed)
        running.moved("failed", "failed")
