"""What stays possible: from every reachable state an end, and without faults the good one."""

from __future__ import annotations

from elasticfsm.check.explore import Graph
from elasticfsm.check.move import AGREED, BUSY, ENVIRONMENT, FAULT, QUIET, REFUSAL
from elasticfsm.check.world import ABORTED, ABSENT, DONE

ALONE = {"quiet": ENVIRONMENT | FAULT | BUSY, "busy": ENVIRONMENT | FAULT | QUIET}


def hopeless(graph: Graph) -> list[int]:
    """The states from which no good end can be reached, in a quiet or in a busy environment."""
    reached = [graph.backwards(graph.good, closed) for closed in ALONE.values()]
    return [place for place in range(len(graph.states)) if not all(found[place] for found in reached)]


def stranded(graph: Graph) -> tuple[int, str] | None:
    """The first state from which no declared end can be reached without help, and under which environment; else None.

    Quiet: no request comes any more, and a forward step says `empty` whenever nobody wants it. Busy: it always says
    `work`. In both the operator and the step counter stay silent, and no fault helps.
    """
    goals = [place for place, ends in graph.ends.items() if ends in (DONE, ABORTED, ABORTED | ABSENT)]
    if graph.service is not None:
        goals = graph.good
    worst: tuple[int, str] | None = None
    for name, closed in ALONE.items():
        reached = graph.backwards(goals, closed)
        place = reached.find(0)
        if place >= 0 and (worst is None or place < worst[0]):
            worst = (place, name)
    return worst


def blocked(graph: Graph) -> int | None:
    """The first state from which no forward step can be completed any more, although no serving engine died."""
    steps = graph.leaving(AGREED)
    if not steps:
        return None
    reached = graph.backwards(steps, FAULT)
    service = graph.service
    lost = (place for place, found in enumerate(reached) if not found)
    return next((place for place in lost if service is not None and not service.mourned(graph.states[place])), None)


def uncommitted(graph: Graph) -> int | None:
    """The first end that is not `done` although nobody refused; -1 if `done` is out of reach; None if all is well."""
    reached = graph.forwards(REFUSAL)
    ends = {place: ends for place, ends in graph.ends.items() if reached[place]}
    wrong = [place for place, how in ends.items() if how != DONE]
    if wrong:
        return min(wrong)
    return None if ends else -1
