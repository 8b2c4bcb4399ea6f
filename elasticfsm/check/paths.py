"""What can be reached in a graph that was explored, forwards and backwards, along transitions without certain tags."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from elasticfsm.check.explore import Graph

Backward = tuple["array[int]", "array[int]", bytearray]  # where the edges of each target begin, their sources and tags


def backwards(graph: Graph, goals: Iterable[int], closed: int) -> bytearray:
    """For each state 1 if a goal can be reached from it without a transition that has one of the tags `closed`."""
    offsets, sources, tags = graph.backward
    stack = list(goals)
    reached = bytearray(len(graph.states))
    for goal in stack:
        reached[goal] = 1
    while stack:
        place = stack.pop()
        for slot in range(offsets[place], offsets[place + 1]):
            source = sources[slot]
            if not reached[source] and not tags[slot] & closed:
                reached[source] = 1
                stack.append(source)
    return reached


def forwards(graph: Graph, closed: int) -> bytearray:
    """For each state 1 if it can be reached from the first one without a transition that has one of these tags."""
    reached = bytearray(len(graph.states))
    reached[0] = 1
    stack = [0]
    while stack:
        place = stack.pop()
        for edge in range(graph.offsets[place], graph.offsets[place + 1]):
            target = graph.targets[edge]
            if not reached[target] and not graph.tags[edge] & closed:
                reached[target] = 1
                stack.append(target)
    return reached


def leaving(graph: Graph, tags: int) -> list[int]:
    """The states out of which a transition with one of these tags leads, in order."""
    offsets = graph.offsets
    return [
        place
        for place in range(len(offsets) - 1)
        if any(graph.tags[edge] & tags for edge in range(offsets[place], offsets[place + 1]))
    ]


def reverse(graph: Graph) -> Backward:
    """The transitions sorted by target."""
    count = len(graph.states)
    starts = array("l", bytes(8 * (count + 1)))
    for target in graph.targets:
        starts[target + 1] += 1
    for place in range(count):
        starts[place + 1] += starts[place]
    fill = array("l", starts)
    sources = array("l", bytes(8 * len(graph.targets)))
    tags = bytearray(len(graph.targets))
    for place in range(count):
        for edge in range(graph.offsets[place], graph.offsets[place + 1]):
            slot = fill[graph.targets[edge]]
            fill[graph.targets[edge]] = slot + 1
            sources[slot] = place
            tags[slot] = graph.tags[edge]
    return starts, sources, tags
