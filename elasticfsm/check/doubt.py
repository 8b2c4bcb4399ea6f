"""Who is in doubt: an engine whose join has succeeded, and which knows no decision."""

from __future__ import annotations

from elasticfsm.check.tables import WayTable
from elasticfsm.check.world import RELEASED, Local, World


def joined(world: World, local: Local) -> bool:
    """Whether the join of an engine has succeeded: from its release on, also if it does not know that yet."""
    fact = world.tables.facts.bits.get("standby joined", 0)
    if local.facts & fact:
        return True
    for machine, stand in enumerate(local.stands):
        step = world.step_of(local, machine)
        if stand is not None and step is not None and stand.inside >= RELEASED and step.provides & fact:
            return True
    return False


def in_doubt(world: World, local: Local, machine: int, way: WayTable) -> bool:
    """Whether an engine that has joined, and knows no decision, gives up by its own deadline."""
    if not world.operation or machine != 0 or local.switched or way.kind != "expired":
        return False
    if not joined(world, local):
        return False
    stand = local.stands[machine]
    open_ = stand is not None and "done" in world.ends_of(local.role, machine, stand.state)
    return open_ and world.ends_of(local.role, machine, way.target) == {"aborted"}
