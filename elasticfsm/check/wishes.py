"""What the environment may wish for can come about: a forward step for a request, a plan when a rebalance is due."""

from __future__ import annotations

from elasticfsm.check.explore import Graph
from elasticfsm.check.move import FAULT


def unmet(graph: Graph) -> tuple[int, str, str] | None:
    """The first state from which a wish can never be met again, with its message and the fact that stays away.

    The environment may wish for it once more, on every engine: all that is asked is that a way is left. Without that a
    protocol in which nobody listens to the environment holds in every other property. None if all is well.
    """
    worst: tuple[int, str, str] | None = None
    known, facts = graph.successors.known, graph.world.tables.facts
    for message, fact in graph.world.program.wishes.items():
        bit = facts.bits.get(fact, 0)
        met = graph.standing({number for number in graph.locals() if known[number].facts & bit})
        place = graph.backwards(met, FAULT).find(0)
        if place >= 0 and (worst is None or place < worst[0]):
            worst = (place, message, fact)
    return worst
