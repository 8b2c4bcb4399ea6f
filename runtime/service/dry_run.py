"""`dry_run`: what a change of size would do, from the placement that is in force; nothing is started."""

from __future__ import annotations

from typing import Any

from elasticfsm.errors import RequestRefused

from ..deployment import Deployment
from ..forecast.predict import Assumptions, predict


def foretold(deployment: Deployment, size: int, remove: tuple[str, ...] = ()) -> dict[str, Any]:
    """The forecast as JSON; RequestRefused for a size or engines that cannot be. May copy memory for milliseconds."""
    deployment.sizes.check(size)
    members = deployment.members
    unknown = [engine for engine in remove if engine not in members]
    if unknown or (remove and len(members) - len(remove) != size):
        raise RequestRefused(f"cannot remove {', '.join(remove)} and have {size} engines of {', '.join(members)}")
    head: dict[str, Any] = {"dry_run": True, "active_data_parallel_size": len(members), "requested_size": size}
    if size == len(members):
        return head | {"direction": "none", "message": f"the size is {size} already: nothing would happen"}
    leaving = remove or deployment.leaving(size)
    options = deployment.options
    said = predict(
        deployment.config,
        len(members),
        size,
        options.slots,
        leaving=[members.index(engine) for engine in leaving],
        placement=deployment.placement,
        assumptions=Assumptions(kv_blocks=options.kv_blocks, transfer="p2p" if options.transfer == "p2p" else "nixl"),
    )
    return head | {
        "direction": "up" if size > len(members) else "down",
        "engines_to_add": max(0, size - len(members)),
        "engines_to_remove": list(leaving),
        "bytes_moved": said.bytes_moved,
        "layers_moved": said.layers_moved,
        "pause_steps": round(said.pause_steps, 2),
        "preparing_seconds": round(said.preparing_seconds, 2),
        "experts_seconds": round(said.experts_seconds, 2),
        "kv_tokens_before": said.kv_tokens_before,
        "kv_tokens_after": said.kv_tokens_after,
    }
