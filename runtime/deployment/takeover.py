"""A coordinator that is started anew: finds the engines of a former one, asks what they are, and decides what was left.

Engines hold the answer (what they had said in the operation they say again); the disk holds who they are and what had
been decided. Nothing is journalled before all have answered or are known to be dead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from elasticfsm.errors import RequestRefused

from ..adopted import adopt
from ..changes import change_of
from ..fingerprint import CODE
from ..ledger import Ledger, Standing
from ..operation import ENDED, Operation, Record
from ..options import Options
from .deaths import SILENCE, bury, conclude
from .scaling import coordinator_of

if TYPE_CHECKING:
    from .facade import Deployment

D = TypeVar("D", bound="Deployment")

log = logging.getLogger(__name__)


def standing_of(deployment: Deployment) -> Standing:
    """Who serves, as a later coordinator has to know it."""
    return Standing(
        instance=deployment.instance,
        generation=deployment.generation,
        members=deployment.members,
        model=str(deployment.model),
        address=deployment.address,
        journal=str(deployment.journals.resolve()),
        next_engine=deployment.roster.next_id,
        options=msgspec.to_builtins(deployment.options),
        processes=deployment._launcher.pids(),
        retired=tuple(each.engine for each in deployment.roster.living() if each.retired),
        code=CODE,
    )


def refuse_survivors(ledger: Ledger) -> None:
    """RequestRefused when engines of a former coordinator still run; an operation that nobody remembers has failed."""
    standing = ledger.standing()
    if standing is not None:
        _refuse_members(ledger.directory, standing)
    record = ledger.operation()
    if record is not None and record.phase not in ENDED:
        lost = Operation(record, ledger.write)
        lost.failed("its coordinator ended, and then its engines; what they decided is unknown", "restart")
        lost.moved("failed", "failed")


def _refuse_members(directory: Path, standing: Standing) -> None:
    found = {engine: adopt(pid, engine) for engine, pid in standing.processes.items()}
    alive = {engine: process for engine, process in found.items() if process is not None}
    if standing.generation == 0:  # they never served: their coordinator ended while it started them
        for process in alive.values():
            process.kill()
            process.wait(10)
        return
    for process in alive.values():
        process.close()
    strangers = [engine for engine in standing.members if engine not in standing.processes]
    if alive or strangers:
        may = "may still run" if strangers and not alive else "still run"
        raise RequestRefused(
            f"{directory}: engines {', '.join([*alive, *strangers])} of a former coordinator {may}; take them over "
            f"with `elasticfsm serve --resume {directory}`, or end them and remove deployment.json there"
        )


def take_over(kind: type[D], directory: Path, begun: Callable[[], None]) -> D:
    """See Deployment.resume."""
    standing = Ledger(directory).standing()
    if standing is None or standing.generation == 0:
        raise RequestRefused(f"{directory}: no deployment is recorded here; start one with `elasticfsm serve --model`")
    if standing.code != CODE:  # before anything changes: its engines serve on
        raise RequestRefused(
            f"{directory}: the engines there run elasticfsm {standing.code or 'of an older version'}, this is {CODE}; "
            "take them over with the version that started them, or end them and start the deployment again"
        )
    options = msgspec.convert(standing.options, Options)
    options = msgspec.structs.replace(options, directory=str(directory), journal=standing.journal)
    deployment = kind(standing.model, len(standing.members), options, standing)
    try:
        begun()
        _decide(deployment, standing)
    except BaseException:
        deployment.close()
        raise
    return deployment


def _decide(deployment: Deployment, standing: Standing) -> None:
    record = deployment.ledger.operation()
    handle = None
    if record is not None and record.phase not in ENDED:
        handle = _left_behind(deployment, record)
    involved = handle.record.participants if handle is not None else ()  # who leaves is no member any more
    expected = tuple(dict.fromkeys((*standing.members, *involved, *standing.retired)))
    deployment.roster.go_on(standing.next_engine)
    deployment.roster.expect(expected, handle.id if handle is not None else "")
    deployment._listen()
    for engine in expected:
        pid = standing.processes.get(engine, 0)
        if pid and not deployment._launcher.adopt(engine, pid):
            bury(deployment, engine, f"its process {pid} ended while no coordinator was there")
    silence = SILENCE * deployment.options.timescale
    absent = deployment._await_answers(standing.members, silence)
    for engine in absent:
        bury(deployment, engine, f"it did not say within {silence:g} s what it is")
    coordinator = deployment._coordinator
    if handle is not None and coordinator is not None:
        if deployment.failed:
            conclude(deployment)
        else:
            gone = [engine for engine in involved if not deployment.roster.lives((engine,))]
            coordinator.resume([engine for engine in handle.record.engines_to_add if engine not in gone], gone)
    leaving = handle.record.engines_to_remove if handle is not None else ()
    deployment.router.admit(engine for engine in deployment.members if engine not in leaving)
    log.warning("took over", extra={"engine": ",".join(deployment.members), "state": standing.instance})


def _left_behind(deployment: Deployment, record: Record) -> Operation:
    """The operation that was running: its coordinator takes mail from now on, and begins when all have answered."""
    record.instance_id = deployment.instance
    handle = deployment.operations.resume(record)
    timeouts = {"prepare": record.prepare_timeout, "commit": record.commit_timeout, "drain": record.drain_timeout}
    deployment._coordinator = coordinator_of(deployment, handle, change_of(record), timeouts)
    return handle
