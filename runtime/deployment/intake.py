"""What the deployment does with each message of an engine; runs in the hub's thread."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from elasticfsm.mailbox import Letter

from .. import wire
from .deaths import bury

if TYPE_CHECKING:
    from .facade import Deployment


log = logging.getLogger(__name__)


def receive(deployment: Deployment, engine: str, message: wire.Mail) -> None:
    """Act on one message; one of an engine that is not ours (any more) is dropped and counted."""
    if isinstance(message, wire.Hello):
        _hello(deployment, message)
        return
    if isinstance(message, wire.Here):
        _here(deployment, message)
        return
    status = message if isinstance(message, wire.Status) else None
    if status is not None and status.instance not in ("", deployment.instance) and deployment.roster.unknown(engine):
        _ask(deployment, engine)
    elif status is None and message.instance not in ("", deployment.instance):
        deployment._hub.drop("other instance")
        return
    if not deployment.roster.heard(engine, status):
        deployment._hub.drop("unexpected engine")
        return
    _act(deployment, engine, message)


def _act(deployment: Deployment, engine: str, message: wire.Mail) -> None:
    match message:
        case wire.Tokens():
            deployment.router.tokens(engine, message.tokens)
        case wire.Stopped():
            for request, epoch, _, reason in message.requests:
                deployment.router.stopped(engine, request, epoch, reason)
        case wire.Status():
            deployment.counts.take(message)
        case wire.Protocol():
            _letter(deployment, message)
        case wire.Booted():
            deployment._has_booted(engine)
        case wire.Retire() if not deployment._closed:  # else the signal that ends it came before the message that does
            deployment.retirements.ask(engine, message.within)
        case wire.Failure():
            _failure(deployment, engine, message)


def _hello(deployment: Deployment, message: wire.Hello) -> None:
    welcome = wire.Welcome(sender=wire.COORDINATOR, instance=deployment.instance, settings=settings(deployment))
    turned = deployment.roster.hello(message, welcome)
    said = {"engine": message.sender, "operation": message.operation}
    if turned is None:
        log.info("joined", extra=said)
    elif turned.final:
        log.warning("turned away", extra=said | {"error": turned.reason})
    if turned is not None:
        deployment._hub.send(message.sender, turned)
        if turned.code:  # nobody else will come for it: what waits for this engine ends with that reason
            bury(deployment, message.sender, turned.reason)


def _ask(deployment: Deployment, engine: str) -> None:
    """An engine that we expect belonged to a former coordinator."""
    adopt = wire.Adopt(
        sender=wire.COORDINATOR, instance=deployment.instance, pid=os.getpid(), store=deployment._store.address
    )
    deployment._hub.send(engine, adopt)


def _here(deployment: Deployment, message: wire.Here) -> None:
    engine = message.sender
    if message.instance != deployment.instance or not deployment.roster.adopt(message):
        deployment._hub.drop("unexpected engine")
        return
    if deployment._launcher.pid(engine) is None and deployment.options.launch:
        deployment._launcher.adopt(engine, message.pid)
    deployment.router.void(message.lost)
    deployment._journal.put("adopted", "", source=engine, of=message.operation, lost=message.lost)
    log.info("adopted", extra={"engine": engine, "operation": message.operation, "state": message.role})
    deployment._answered()


def settings(deployment: Deployment) -> wire.Settings:
    """What an engine must know before it can take part."""
    options = deployment.options
    return wire.Settings(
        model=str(deployment.model),
        slots=options.slots,
        kv_blocks=options.kv_blocks,
        max_tokens=options.max_tokens,
        store=deployment._store.address,
        transfer=options.transfer,
        eplb=options.eplb,
        eplb_interval=options.eplb_interval,
        eplb_window=options.eplb_window,
        eplb_step_bytes=options.eplb_step_bytes,
        policy=options.policy,
        expert_sums=deployment._sums,
        journal=str(deployment.journals.resolve()),
        faults=options.faults,
        device=options.device,
        dtype=options.dtype,
        timescale=options.timescale,
    )


def _letter(deployment: Deployment, message: wire.Protocol) -> None:
    coordinator = deployment._coordinator
    if coordinator is None or message.operation != coordinator.operation.id:
        deployment._hub.drop("other operation")
        return
    coordinator.deliver(
        Letter(
            message.name,
            message.machine,
            message.sender,
            message.receiver,
            message.operation,
            message.generation,
        )
    )


def _failure(deployment: Deployment, engine: str, message: wire.Failure) -> None:
    deployment._journal.put("report", "", source=engine, error=message.text, fatal=message.fatal)
    log.warning("reports", extra={"engine": engine, "operation": message.operation, "error": message.text})
    coordinator = deployment._coordinator
    if coordinator is not None and message.operation in ("", coordinator.operation.id):
        coordinator.operation.failed(f"engine {engine}: {message.text}", "failure")
    launched = deployment._launcher.pid(engine) is not None
    if message.fatal and not launched:  # else its process ends: whoever died first is named
        bury(deployment, engine, message.text)
