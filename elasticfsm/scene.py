"""Where one engine stood at the end of its journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from elasticfsm.journal import Event
from elasticfsm.protocol import Machine


@dataclass
class Scene:
    """`entered`: per machine the entry into its last state. `steps`: per machine the step that runs.

    `inside`: collectives entered and not left. `begun`: (operation, step) of every step that began. `arrived`:
    (message, engine) that reached the coordinator; `engines` its engines by role.
    """

    last: Event = field(default_factory=dict)
    entered: dict[str, Event] = field(default_factory=dict)
    steps: dict[str, Event] = field(default_factory=dict)
    inside: list[Event] = field(default_factory=list)
    begun: set[tuple[str, str]] = field(default_factory=set)
    arrived: set[tuple[str, str]] = field(default_factory=set)
    engines: dict[str, list[str]] = field(default_factory=dict)
    active: str = ""
    standby: str = ""
    error: str = ""
    closed: bool = False

    def asks(self, machines: Mapping[str, Machine]) -> set[str]:
        """The votes that the engine casts by where its machines stand."""
        places = ((machines.get(name), event["state"]) for name, event in self.entered.items())
        return {vote for spec, state in places if spec and state in spec.states for vote in spec.states[state].asked()}


def scene(events: Iterable[Event]) -> Scene:
    """Reads a journal to its end."""
    found = Scene()
    for event in events:
        found.last = event
        reader = _READERS.get(event["event"])
        if reader is not None:
            reader(found, event)
    return found


def _enter(found: Scene, event: Event) -> None:
    found.entered[event["machine"]] = event
    found.steps.pop(event["machine"], None)


def _begin(found: Scene, event: Event) -> None:
    found.steps[event["machine"]] = event
    found.begun.add((event["operation"], event["step"]))


def _end(found: Scene, event: Event) -> None:
    found.steps.pop(event["machine"], None)
    found.error = event.get("error") or found.error
    if not event.get("error") and event["step"] == "groups.switch":
        found.active, found.standby = found.standby, ""


def _before(found: Scene, event: Event) -> None:
    found.inside.append(event)


def _after(found: Scene, event: Event) -> None:
    same = [one for one in found.inside if (one["group"], one["op"]) == (event["group"], event["op"])]
    if same:
        found.inside.remove(same[0])
    found.error = event.get("error") or found.error


def _generation(found: Scene, event: Event) -> None:
    if found.active or event["operation"]:
        found.standby = event["of"]
    else:
        found.active = event["of"]


def _operation(found: Scene, event: Event) -> None:
    found.engines = event.get("engines", found.engines)


def _arrived(found: Scene, event: Event) -> None:
    found.arrived.add((event["message"], event["source"]))


def _failed(found: Scene, event: Event) -> None:
    found.error = event["error"]


def _refused(found: Scene, event: Event) -> None:
    found.error = f"refused {event['got']} on {event['group']} in step `{event['step']}`; expected {event['expected']}"


def _closed(found: Scene, event: Event) -> None:
    found.closed = True


_READERS = {
    "enter": _enter,
    "step.begin": _begin,
    "step.end": _end,
    "collective.before": _before,
    "collective.after": _after,
    "generation": _generation,
    "operation.begin": _operation,
    "arrived": _arrived,
    "failed": _failed,
    "unhandled": _failed,
    "refused": _refused,
    "close": _closed,
}
