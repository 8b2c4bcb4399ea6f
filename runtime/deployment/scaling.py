"""A request to change the size: refused with everything as it was, joined to the operation that runs, or begun."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from elasticfsm.errors import RequestRefused

from ..changes import Change, change
from ..coordinator import Coordinator
from ..naming import refuse_id
from ..operation import Conflict, Operation
from ..options import durations
from ..store import StoreServer

if TYPE_CHECKING:
    from .facade import Deployment


@dataclass(frozen=True)
class Wanted:
    """See Deployment.scale."""

    size: int
    remove: tuple[str, ...] = ()
    add: tuple[str, ...] = ()
    operation: str = ""
    launch: bool | None = None
    drain: bool = False
    timeouts: Mapping[str, float] = field(default_factory=dict)
    expected_instance: str = ""
    urgent: bool = False


def refuse(deployment: Deployment, wanted: Wanted) -> None:
    """Raise RequestRefused or Conflict for what cannot begin now; a request that joins an operation passes."""
    expected = wanted.expected_instance
    if expected and expected != deployment.instance:
        raise Conflict(f"the instance is {deployment.instance}, expected {expected}; look at the status and ask again")
    if wanted.operation and deployment.operations.find(wanted.operation):
        return  # answered from the record
    ended = deployment.failed or deployment.router.closed
    if ended or deployment._closed:
        raise RequestRefused(f"the deployment has ended: {ended or 'closed'}; start it again")
    deployment.sizes.check(wanted.size)
    if wanted.operation:
        refuse_id("operation", wanted.operation)
    for engine in wanted.add:
        refuse_id("engine", engine)
    _refuse_after_failure(deployment)
    if deployment.operations.running is None:
        _refuse_engines(deployment, wanted)
        if not wanted.urgent and wanted.size != len(deployment.members):
            _refuse_hot(deployment)


def _refuse_after_failure(deployment: Deployment) -> None:
    """After an operation that neither completed nor was undone, engines may stand in different states."""
    last = deployment.operations.current
    if last is not None and last.record.phase == "failed":
        raise RequestRefused(
            f"operation {last.id} failed ({last.record.error}); requests are served on, but the size cannot be changed "
            "any more: start the deployment again"
        )


def _refuse_engines(deployment: Deployment, wanted: Wanted) -> None:
    members, size = deployment.members, wanted.size
    if wanted.add and (len(members) + len(wanted.add) != size or len(set(wanted.add)) != len(wanted.add)):
        raise RequestRefused(f"cannot add {', '.join(wanted.add)} to {len(members)} engines and have {size}")
    deployment.roster.free(wanted.add)
    unknown = set(wanted.remove) - set(members)
    if unknown or (wanted.remove and len(members) - len(set(wanted.remove)) != size):
        raise RequestRefused(
            f"cannot remove {', '.join(wanted.remove)} and have {size} engines; the members are {', '.join(members)}"
        )


def _refuse_hot(deployment: Deployment) -> None:
    last = deployment.operations.last_change
    if last is None:
        return
    left = last.record.ended + deployment.options.cooldown - time.time()
    if left > 0:
        raise Conflict(f"operation {last.id} ended lately; the next one may begin in {left:.1f} s", left)


def begin(deployment: Deployment, wanted: Wanted) -> Operation:
    """The operation that does what is wanted: a fresh one, or the one that it joins. The caller holds the lock."""
    refuse(deployment, wanted)
    members, size = deployment.members, wanted.size
    handle, fresh = deployment.operations.begin(
        size,
        len(members),
        deployment.generation + (size != len(members)),
        wanted.operation,
        tuple(dict.fromkeys(wanted.remove)),
        wanted.drain,
    )
    if not fresh:
        return handle
    if size == len(members):
        handle.moved("done", "completed")
        return handle

    def names(count: int) -> list[str]:
        return list(wanted.add) or deployment.roster.new_ids(count)

    made = change(members, size, names, wanted.remove or deployment.leaving(size))
    deployment._coordinator = coordinator_of(deployment, handle, made, wanted.timeouts, wanted.launch)
    deployment._coordinator.begin()
    return handle


def coordinator_of(
    deployment: Deployment,
    handle: Operation,
    made: Change,
    timeouts: Mapping[str, float],
    launch: bool | None = None,
) -> Coordinator:
    """The coordinator of an operation, not begun; `timeouts` replace the deadlines `prepare`, `commit` and `drain`."""
    options, record = deployment.options, handle.record
    given = {name: seconds for name, seconds in timeouts.items() if name != "drain"}
    deadlines = durations(options, made.protocol) | given
    record.members, record.engines_to_add, record.engines_to_remove = made.previous, made.new, made.removing
    record.prepare_timeout, record.commit_timeout = deadlines["prepare"], deadlines["commit"]
    record.drain_timeout = timeouts.get("drain", options.drain_timeout)
    return Coordinator(
        handle,
        made,
        deployment.sizes,
        _living_store(deployment),
        roster=deployment.roster,
        launcher=deployment._launcher if (options.launch if launch is None else launch) else None,
        router=deployment.router,
        address=deployment.address,
        journal=deployment._journal,
        deadlines=deadlines,
        committed=deployment._committed,
        keep_retired=options.keep_retired,
    )


def _living_store(deployment: Deployment) -> str:
    """The address of the store; of a new one if the old one is gone, because nobody but operations uses it."""
    if not deployment._store.answers():
        deployment._store = StoreServer()
        deployment._stack.callback(deployment._store.close)
    return deployment._store.address
