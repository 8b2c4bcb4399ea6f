"""Perfect deadlines: one expires only when it is hopeless to wait, and that is found out by exploring.

First no deadline expires. Where no good end can be reached then, deadlines may. What that adds is explored; it may have
states from which no end can be reached either. So on, until nothing is added: then every state from which an end can
be reached without a deadline waits for it, and every other one does not.
"""

from __future__ import annotations

from collections.abc import Callable

from elasticfsm.check.explore import Graph, explore
from elasticfsm.check.liveness import hopeless
from elasticfsm.check.world import World


def patient(
    world: World, reduced: bool = True, limit: int | None = None, progress: Callable[[int], None] | None = None
) -> Graph:
    """Explores a world whose deadlines are perfect, as often as that takes; the graph is that of the last time."""
    while True:
        graph = explore(world, reduced, limit, progress)
        found = {graph.states[place] for place in hopeless(graph)} if graph.complete else set()
        if found <= world.given_up:
            return graph
        world.given_up |= found
