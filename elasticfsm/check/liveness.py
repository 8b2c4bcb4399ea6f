"""What stays possible: from every reachable state an end, and without faults the good one."""

from __future__ import annotations

from array import array
from collections import deque

from elasticfsm.check.explore import Graph
from elasticfsm.check.moves import AGREED, BUSY, ENVIRONMENT, FAULT, QUIET, REFUSAL
from elasticfsm.check.world import ABORTED, ABSENT, DONE


def stranded(graph: Graph) -> tuple[int, str] | None:
    """The first state from which no declared end can be reached without help, and under which environment; else None.

    Quiet: no request comes any more, and a forward step says `empty` whenever nobody wants it. Busy: it always says
    `work`. In both the operator and the step counter stay silent, and no fault helps.
    """
    offsets, sources, tags = _reversed(graph)
    goals = [place for place, ends in graph.ends.items() if ends in (DONE, ABORTED, ABORTED | ABSENT)]
    if graph.service is not None:
        goals = graph.good
    worst: tuple[int, str] | None = None
    for name, closed in (("quiet", ENVIRONMENT | FAULT | BUSY), ("busy", ENVIRONMENT | FAULT | QUIET)):
        reached = _backwards(len(graph.states), goals, offsets, sources, tags, closed)
        place = reached.find(0)
        if place >= 0 and (worst is None or place < worst[0]):
            worst = (place, name)
    return worst


def blocked(graph: Graph) -> int | None:
    """The first state from which no forward step can be completed any more, although no serving engine died."""
    offsets, sources, tags = _reversed(graph)
    steps = [
        place
        for place in range(len(graph.states))
        if any(graph.tags[edge] & AGREED for edge in range(graph.offsets[place], graph.offsets[place + 1]))
    ]
    if not steps:
        return None
    reached = _backwards(len(graph.states), steps, offsets, sources, tags, FAULT)
    service = graph.service
    lost = (place for place, found in enumerate(reached) if not found)
    return next((place for place in lost if service is not None and not service.mourned(graph.states[place])), None)


def uncommitted(graph: Graph) -> int | None:
    """The first end that is not `done` although nobody refused; -1 if `done` is out of reach; None if all is well."""
    seen = bytearray(len(graph.states))
    seen[0] = 1
    queue = deque([0])
    done = False
    while queue:
        place = queue.popleft()
        ends = graph.ends.get(place)
        if ends is not None and ends != DONE:
            return place
        done = done or ends == DONE
        for edge in range(graph.offsets[place], graph.offsets[place + 1]):
            target = graph.targets[edge]
            if not graph.tags[edge] & REFUSAL and not seen[target]:
                seen[target] = 1
                queue.append(target)
    return None if done else -1


def _reversed(graph: Graph) -> tuple[array[int], array[int], bytearray]:
    """The edges sorted by target: offsets, sources and tags."""
    count = len(graph.states)
    starts = array("l", bytes(8 * (count + 1)))
    for target in graph.targets:
        starts[target + 1] += 1
    for place in range(count):
        starts[place + 1] += starts[place]
    fill = array("l", starts)
    sources = array("l", bytes(8 * len(graph.targets)))
    tags = bytearray(len(graph.targets))
    edge = 0
    for place in range(count):
        for edge in range(graph.offsets[place], graph.offsets[place + 1]):
            slot = fill[graph.targets[edge]]
            fill[graph.targets[edge]] = slot + 1
            sources[slot] = place
            tags[slot] = graph.tags[edge]
    return starts, sources, tags


def _backwards(
    count: int, goals: list[int], offsets: array[int], sources: array[int], tags: bytearray, closed: int
) -> bytearray:
    reached = bytearray(count)
    for goal in goals:
        reached[goal] = 1
    stack = list(goals)
    while stack:
        place = stack.pop()
        for slot in range(offsets[place], offsets[place + 1]):
            source = sources[slot]
            if not reached[source] and not tags[slot] & closed:
                reached[source] = 1
                stack.append(source)
    return reached
