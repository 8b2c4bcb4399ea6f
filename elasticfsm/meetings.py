"""The collectives of a run as its journals tell them: who issued what on which group, in which order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from elasticfsm.journal import Event
from elasticfsm.monitor import POINT_TO_POINT

Group = tuple[str, str]  # kind (with #ATTEMPT if it was made anew) and generation, OPERATION:NUMBER


def group_of(event: Event) -> Group:
    """The group of a collective event, by identity: names move with a switch, and a group may have been made anew."""
    kind, attempt = event["group"].partition(".")[0], event.get("attempt")
    return (f"{kind}#{attempt}" if attempt else kind, event["of"])


def collectives(journals: Mapping[str, list[Event]]) -> dict[Group, dict[str, list[Event]]]:
    """For every group and engine, its `collective.before` events in the order of issue; the k-th ones meet.

    Where a journal has lost some, the event `dropped` stands in the place of each of them.
    """
    found: dict[Group, dict[str, list[Event]]] = defaultdict(lambda: defaultdict(list))
    for engine, events in journals.items():
        for event in events:
            if event["event"] == "collective.before" and event["op"] not in POINT_TO_POINT:
                found[group_of(event)][engine].append(event)
            elif event["event"] == "dropped":
                for kind, of, number in event["collectives"]:
                    found[kind, of][engine] += [event] * number
    return {group: dict(engines) for group, engines in found.items()}


def members(journals: Mapping[str, list[Event]]) -> dict[str, tuple[str, ...]]:
    """The members of every generation that a journal names."""
    found: dict[str, tuple[str, ...]] = {}
    for events in journals.values():
        for event in events:
            if event["event"] == "generation" and event["members"]:
                found[event["of"]] = tuple(event["members"])
    return found
