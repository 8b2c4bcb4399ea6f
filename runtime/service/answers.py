"""What clients get: the status in the words of several dialects, errors in one shape, and the codes."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from fastapi.responses import JSONResponse

from elasticfsm.errors import ElasticError, OperationRunning

from ..deployment import Deployment
from ..engine.kv_cache import BLOCK_SIZE
from ..experts.placement import minimum_ranks
from ..operation import Conflict, Operation, Record
from ..roster import Member
from .bodies import TooLarge, UnknownModel

REMEMBERED = 20  # ended operations in the status
ABORTED = {"deadline": 408, "drain": 408, "cancelled": 409, "refused": 400}  # cause -> code; the old size serves


def plain(record: Record) -> dict[str, Any]:
    """A record as JSON."""
    found: dict[str, Any] = msgspec.to_builtins(record)
    return found | {"direction": record.direction}


def error(text: str, code: int, record: Record | None = None, retry_after: float | None = None) -> JSONResponse:
    """An error in vLLM's shape, with the operation's record beside it if there is one."""
    kind = HTTPStatus(code).phrase
    body: dict[str, Any] = {"error": {"message": text, "type": kind, "param": None, "code": code}}
    headers = {}
    if record is not None:
        body["operation"] = plain(record)
    if retry_after is not None:
        body["retry_after"] = round(retry_after, 1)
        headers["Retry-After"] = str(max(1, round(retry_after)))
    return JSONResponse(body, code, headers)


def refusal(deployment: Deployment, refused: ElasticError) -> JSONResponse:
    """The answer to a request that changed nothing."""
    running = deployment.operations.running
    record = running.status() if running is not None else None
    if isinstance(refused, TooLarge):
        return error(str(refused), 413)
    if isinstance(refused, UnknownModel):
        return error(str(refused), 404)
    if deployment.failed or deployment.router.closed:
        return error(str(refused), 503)
    if isinstance(refused, Conflict):
        return error(str(refused), 409, record, refused.retry_after)
    if isinstance(refused, OperationRunning):
        return error(str(refused), 409, record)
    return error(str(refused), 400)


def outcome(deployment: Deployment, operation: Operation) -> JSONResponse:
    """The answer for an operation that has ended, or 202 for one that runs."""
    record = operation.status()
    size = record.requested_size
    if record.phase == "completed":
        message = f"Scaled to {size} data parallel engines"
        return JSONResponse({"message": message, "operation": plain(record)})
    if not operation.ended:
        message = f"Scaling to {size} data parallel engines"
        return JSONResponse({"message": message, "operation": plain(record)}, 202)
    if record.phase == "failed":
        text = f"{record.error or 'the operation failed'}; engines: {_states(record)}"
        return error(text, 500, record)
    text = f"{record.error or 'aborted'}; {record.active_size} engines serve as before"
    return error(text, ABORTED.get(record.cause, 500), record)


def _states(record: Record) -> str:
    return ", ".join(f"{engine} {state}" for engine, state in sorted(record.engines.items())) or "unknown"


def valid_sizes(deployment: Deployment) -> list[int]:
    """Sizes that could be asked for."""
    least = minimum_ranks(deployment.config.num_experts, deployment.options.slots)
    return list(range(max(least, 1), deployment.options.largest + 1))


def engine_state(deployment: Deployment, member: Member, record: Record | None) -> str:
    """One word for an engine: active, joining, retiring, retired, failed or stopped."""
    engine = member.engine
    if member.dead:
        return "failed" if member.pid else "stopped"  # one that never came has not failed
    if member.stopped:
        return "stopped"
    if member.retired:
        return "retired"
    if engine in deployment.retirements.waiting or (record is not None and engine in record.engines_to_remove):
        return "retiring"
    return "active" if engine in deployment.members else "joining"


def running_record(deployment: Deployment) -> Record | None:
    """The record of the operation under way."""
    running = deployment.operations.running
    return running.status() if running is not None else None


def ready(deployment: Deployment, member: Member) -> bool:
    """Whether an engine takes requests and will go on: not before it has switched, not once its removal is decided."""
    record = running_record(deployment)
    return engine_state(deployment, member, record) == "active" and member.engine in deployment.router.admitted


def sizes(deployment: Deployment) -> tuple[dict[str, Any], bool]:
    """Every place that knows a size and what it says, and whether they agree."""
    seen = deployment.status().engines
    engines = {engine: seen[engine].counters.get("size", 0) for engine in deployment.members if engine in seen}
    known = {
        "coordinator": len(deployment.members),
        "router": len(deployment.router.admitted),
        "living": sum(deployment.roster.lives((engine,)) for engine in deployment.members),
        "engines": engines,
    }
    says = {known["coordinator"], known["router"], known["living"], *engines.values()}
    told = {seen[engine].generation for engine in engines} <= {deployment.generation}
    return known, len(says) == 1 and told and len(engines) == len(deployment.members)


def status(deployment: Deployment) -> dict[str, Any]:
    """All that is known, in vLLM's words, those of the public proposal for it, SGLang's, and ours."""
    current = deployment.operations.current
    record = current.status() if current is not None else None
    running = record is not None and current is not None and not current.ended
    members = deployment.members
    known, consistent = sizes(deployment)
    requested = record.requested_size if record is not None and running else len(members)
    past = [each.record.error for each in deployment.operations.past if each.record.error]
    gone = _safe(deployment, record)
    return {
        "is_scaling_elastic_ep": running,
        "phase": record.phase if record is not None else "idle",
        "epoch": record.operation_id if record is not None else None,
        "error": deployment.failed or (record.error if record is not None else "") or None,
        "requested_data_parallel_size": requested,
        "active_data_parallel_size": len(members),
        "operation_id": record.operation_id if record is not None else None,
        "instance_id": deployment.instance,
        "generation": deployment.generation,
        "participating_ranks": list(range(len(members))),
        "safe_to_delete_ranks": _ranks(record, gone),
        "safe_to_delete": list(gone),
        "last_error": (record.error if record is not None else "") or (past[-1] if past else None),
        "effective_ep_size": len(members),
        "pending_ep_size": requested if running else None,
        "scale_phase": record.phase if record is not None else "idle",
        "available_data_parallel_size": known["living"],
        "detail": record.detail if record is not None else "",
        "members": list(members),
        "admitted": list(deployment.router.admitted),
        "engines": _engines(deployment, record, running),
        "ended_operations": _ended(deployment),
        "sizes": known,
        "consistent": consistent and not running,
        "min_size": min(valid_sizes(deployment), default=None),
        "max_size": max(valid_sizes(deployment), default=None),
        "valid_sizes": valid_sizes(deployment),
        "kv_tokens": len(members) * deployment.options.kv_blocks * BLOCK_SIZE,
        "cooldown_seconds": deployment.options.cooldown,
        "operation": plain(record) if record is not None else None,
        "failed": deployment.failed,
    }


def _safe(deployment: Deployment, record: Record | None) -> tuple[str, ...]:
    retired = tuple(each.engine for each in deployment.roster.living() if each.retired)
    return tuple(dict.fromkeys((*(record.safe_to_delete if record is not None else ()), *retired)))


def _ranks(record: Record | None, engines: tuple[str, ...]) -> list[int]:
    """Their ranks in the generation before the operation: others are numbered anew since."""
    before = record.participants if record is not None else ()
    return [before.index(engine) for engine in engines if engine in before]


def _ended(deployment: Deployment) -> dict[str, Any]:
    """How the last operations ended, by id: for whoever asks after the next one has begun."""
    operations = deployment.operations
    ended = [each for each in (*operations.past, operations.current) if each is not None and each.ended]
    return {each.id: {"phase": each.record.phase, "error": each.record.error} for each in ended[-REMEMBERED:]}


def _engines(deployment: Deployment, last: Record | None, running: bool) -> dict[str, Any]:
    """All that live, and those that have ended as long as the last operation is about them."""
    found, record = {}, last if running else None
    living = {member.engine for member in deployment.roster.living()}
    shown = living | set(deployment.members) | set(last.participants if last is not None else ())
    for member in deployment.roster.all():
        if member.engine not in shown:
            continue
        said = member.status
        state = engine_state(deployment, member, record)
        found[member.engine] = {
            "state": state,
            "rank": deployment.members.index(member.engine) if member.engine in deployment.members else None,
            "pid": member.pid or None,
            "ready": ready(deployment, member),
            "operation_state": record.engines.get(member.engine) if record is not None else None,
            "error": member.dead or None,
            "step": said.step if said is not None else 0,
            "running": said.running if said is not None else 0,
            "waiting": said.waiting if said is not None else 0,
            "machines": dict(said.states) if said is not None else {},
        }
    return found


def capacity(deployment: Deployment) -> dict[str, Any]:
    """`ep_capacity`, with the fields of Dynamo's route; an engine counts as one device, also on a CPU."""
    used, largest = len(deployment.members), deployment.options.largest
    return {
        "status": "failed" if deployment.failed else "ok",
        "data_parallel_size": used,
        "tensor_parallel_size": 1,
        "data_parallel_backend": "mp",
        "total_gpus": largest,
        "available_gpus": largest - used,
        "used_gpus": used,
        "nodes": 1,
    }
