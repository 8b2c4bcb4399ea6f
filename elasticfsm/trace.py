"""Holds the journals of a finished run against the spec: everything that happened is allowed, everywhere alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from elasticfsm.compile import program
from elasticfsm.journal import Event, read
from elasticfsm.machine import ABSENT, edges
from elasticfsm.meetings import collectives, members
from elasticfsm.monitor import POINT_TO_POINT
from elasticfsm.protocol import Machine, Step, find, shipped


class Finding(msgspec.Struct, frozen=True):
    """One deviation from the spec: where, when (nanoseconds on the journals' clock), and what was expected."""

    engine: str
    machine: str
    t: int
    text: str

    def __str__(self) -> str:
        return f"{self.engine}{' ' + self.machine if self.machine else ''}: {self.text}"


def validate(directory: Path | str, machines: Mapping[str, Machine] | None = None) -> list[Finding]:
    """The findings for a directory of journals, oldest first; empty when the run was one that the spec allows.

    `machines` are those of the spec by qualified name; default: of the protocols that the journals name.
    """
    journals = read(directory)
    known = machines_of(journals) if machines is None else machines
    found: list[Finding] = []
    for events in journals.values():
        found += _Walk(known).findings(events)
    found += _agreed(journals)
    found += _order(journals)
    found += _ends(journals)
    return sorted(found, key=lambda finding: finding.t)


def spec_machines() -> dict[str, Machine]:
    """Every machine of the shipped protocols by qualified name."""
    return {name: machine for protocol in shipped() for name, machine in program(protocol).machines.items()}


def machines_of(journals: Mapping[str, list[Event]]) -> dict[str, Machine]:
    """The machines of the protocols that a run names: the shipped ones, or one of `spec/variants`."""
    named = {event.get("protocol", "") for event in _all(journals, "operation.begin")}
    variants = sorted(f"variants/{name}" for name in named if find(f"variants/{name}").is_file())
    return {name: each for path in variants for name, each in program(path).machines.items()} or spec_machines()


class _Walk:
    """Follows the machines of one engine through its journal."""

    def __init__(self, machines: Mapping[str, Machine]) -> None:
        self._machines = machines
        self._at: dict[str, str] = {}
        self._index: dict[str, int] = {}
        self._issued: dict[str, list[str]] = {}
        self._unsent: dict[str, set[str]] = {}
        self._found: list[Finding] = []
        self._blind = False
        self._restarted: set[str] = set()

    def findings(self, events: Iterable[Event]) -> list[Finding]:
        for event in events:
            handler = getattr(self, "_" + str(event["event"]).replace(".", "_"), None)
            if event["event"] == "refused":
                self._say(event, f"refused {event['got']} on {event['group']}, expected {event['expected']}")
            elif handler is not None and self._known(event):
                handler(event, self._machines.get(event["machine"]))
        return self._found

    def _known(self, event: Event) -> bool:
        machine = event["machine"]
        if machine in self._machines or machine in ("", "bootstrap"):
            return machine in self._machines or event["event"].startswith(("collective", "dropped"))
        self._say(event, "the spec has no such machine")
        return False

    def _leave(self, event: Event, spec: Machine) -> None:
        name, state, to = event["machine"], event["state"], event["to"]
        if self._at.get(name, ABSENT) != state and not self._lost(name):
            self._say(event, f"left `{state}` but stood in `{self._at.get(name, ABSENT)}`")
        at = spec.states.get(state)
        if at is None or not any(str(way.guard) == event["guard"] and way.target == to for way in at.leave):
            self._say(event, f"`{state}` -> `{to}` by `{event['guard']}` is no edge of the spec")
        for message in sorted(self._unsent.pop(name, set())):
            self._say(event, f"left `{state}` without having sent `{message}`")

    def _enter(self, event: Event, spec: Machine) -> None:
        name, state, came = event["machine"], event["state"], event["came"]
        at = spec.states.get(state)
        if at is None:
            return self._say(event, f"entered `{state}`, which the spec lacks")
        before = self._at.get(name, ABSENT)
        if came == ABSENT and not any(s == ABSENT and t == state for _, s, t in edges(spec)):
            self._say(event, f"started in `{state}`; the spec starts it in {', '.join(spec.starts.values())}")
        elif came == ABSENT and before != ABSENT and not spec.states[before].end:
            self._say(event, f"started in `{state}` while it stood in `{before}`")
        elif came == "" and name in self._restarted:
            self._restarted.discard(name)
        elif came == "" and state != spec.first:
            self._say(event, f"began in `{state}`; an engine that serves already begins in `{spec.first}`")
        elif came not in ("", ABSENT) and came != before and not self._lost(name):
            self._say(event, f"entered `{state}` from `{came}` but stood in `{before}`")
        self._at[name] = state
        self._index[name] = 0
        self._unsent[name] = set(at.sends)
        return None

    def _operation_resume(self, event: Event, spec: Machine) -> None:
        """The coordinator was started anew: what it was about to do did not happen, and it stands where it must ask."""
        name = event["machine"]
        self._restarted.add(name)
        self._at.pop(name, None)
        self._unsent.pop(name, None)

    def _send(self, event: Event, spec: Machine) -> None:
        name, message = event["machine"], event["message"]
        at = spec.states.get(self._at.get(name, ""))
        if at is None or message not in at.sends:
            self._say(event, f"sent `{message}` in `{self._at.get(name, ABSENT)}`, which does not send it")
        self._unsent.get(name, set()).discard(message)

    def _step_begin(self, event: Event, spec: Machine) -> None:
        name = event["machine"]
        at = spec.states.get(event["state"])
        index = self._index.get(name, 0)
        expected = str(at.steps[index]) if at is not None and index < len(at.steps) else "no further step"
        if expected != event["step"] and not self._lost(name):
            self._say(event, f"began step `{event['step']}` in `{event['state']}`, the spec expects {expected}")
        self._index[name] = index + 1
        self._issued[name] = []

    def _step_end(self, event: Event, spec: Machine) -> None:
        if self._lost(event["machine"]):
            return
        issued = self._issued.pop(event["machine"], [])
        at = spec.states.get(event["state"])
        step = next((one for one in at.steps if str(one) == event["step"]), None) if at is not None else None
        if not event.get("error") and event.get("seen", True) and (wrong := _wrong_issues(step, issued)):
            self._say(event, f"step `{event['step']}` issued {', '.join(issued) or 'nothing'}, expected {wrong}")

    def _collective_before(self, event: Event, spec: Machine | None) -> None:
        name = event["machine"]
        if name == "":
            self._say(event, f"{event['op']} on {event['group']} outside of any step")
        elif event["op"] not in POINT_TO_POINT:
            self._issued.setdefault(name, []).append(event["op"])

    def _dropped(self, event: Event, spec: Machine | None) -> None:
        """Events before this one are missing: a machine is followed again from the next state that it enters."""
        self._at.clear()
        self._blind = True

    def _lost(self, name: str) -> bool:
        return self._blind and name not in self._at

    def _unhandled(self, event: Event, spec: Machine) -> None:
        self._say(event, f"a step failed in `{event['state']}`, which has no way out for that: {event['error']}")

    def _say(self, event: Event, text: str) -> None:
        self._found.append(Finding(event["engine"], event["machine"], event["t"], text))


def _wrong_issues(step: Step | None, issued: list[str]) -> str:
    """What a step should have issued, if that differs from what it did; else an empty string."""
    meaning = step.meaning if step is not None else None
    expected = meaning.issues if meaning is not None else []
    if meaning is not None and meaning.repeats == "layers" and expected:
        whole, rest = divmod(len(issued), len(expected))
        return "" if rest == 0 and issued == expected * whole else f"whole layers of {', '.join(expected)}"
    return "" if issued == expected else ", ".join(expected) or "nothing"


def _agreed(journals: Mapping[str, list[Event]]) -> list[Finding]:
    """What was agreed in a step of a generation is the same on all its engines."""
    first: dict[tuple[Any, Any], Event] = {}
    found = []
    for event in _all(journals, "agreed"):
        other = first.setdefault((event["of"], event["number"]), event)
        if (event["votes"], event["answer"]) != (other["votes"], other["answer"]):
            found.append(
                _finding(
                    event,
                    f"step {event['number']} of {event['of']} agreed on {event['votes']} and `{event['answer']}`, "
                    f"but on {other['engine']} on {other['votes']} and `{other['answer']}`",
                )
            )
        if not set(event["votes"]) <= set(event["cast"]):
            found.append(_finding(event, f"votes {event['votes']} are full, but this engine cast {event['cast']}"))
    return found


def _order(journals: Mapping[str, list[Event]]) -> list[Finding]:
    """The k-th collective of a group is the same on all its members, and nobody else uses it."""
    found = []
    belongs = members(journals)
    for (kind, of), engines in collectives(journals).items():
        allowed = belongs.get(of, ())
        for engine, events in engines.items():
            if allowed and engine not in allowed:
                found.append(_finding(events[0], f"used {kind} of {of}, whose members are {', '.join(allowed)}"))
        found += _first_difference(kind, of, engines)
    return found


def _first_difference(kind: str, of: str, engines: Mapping[str, list[Event]]) -> list[Finding]:
    reference, longest = max(engines.items(), key=lambda item: len(item[1]))
    for events in engines.values():
        for number, (mine, other) in enumerate(zip(events, longest, strict=False)):
            lost = "dropped" in (mine["event"], other["event"])
            if not lost and (mine["op"], _named(mine)) != (other["op"], _named(other)):
                text = (
                    f"collective {number} of {kind} of {of} is {mine['op']} of `{mine.get('step')}`, "
                    f"but {other['op']} of `{other.get('step')}` on {reference}"
                )
                return [_finding(mine, text)]
    return []


def _named(event: Event) -> str:
    """The step without its argument: one generation may be `standby` here and `active` there."""
    return str(event.get("step", "")).partition(":")[0]


def _ends(journals: Mapping[str, list[Event]]) -> list[Finding]:
    """Everybody who began an operation ended it, and all in the same way."""
    found = []
    ends: dict[str, dict[str, Event]] = {}
    for event in _all(journals, "operation.end"):
        ends.setdefault(event["operation"], {})[event["engine"]] = event
    for event in _all(journals, "operation.begin"):
        if event["engine"] not in ends.get(event["operation"], {}):
            found.append(_finding(event, f"operation {event['operation']} began here and never ended"))
    found += _digests(journals)
    for operation, each in ends.items():
        if len({event["end"] for event in each.values()}) > 1:
            text = ", ".join(f"{event['end']} on {engine}" for engine, event in sorted(each.items()))
            found.append(_finding(next(iter(each.values())), f"operation {operation} ended as {text}"))
    return found


def _digests(journals: Mapping[str, list[Event]]) -> list[Finding]:
    """Engines that were watched by a compiled table have the same one in the same operation."""
    first: dict[str, Event] = {}
    found = []
    for event in _all(journals, "operation.begin"):
        other = first.setdefault(event["operation"], event)
        if event.get("digest") != other.get("digest"):
            mine, of = event.get("digest"), event.get("protocol")
            text = f"has table {mine} of {of}, {other['engine']} has {other.get('digest')}"
            found.append(_finding(event, text))
    return found


def _all(journals: Mapping[str, list[Event]], kind: str) -> list[Event]:
    return [event for events in journals.values() for event in events if event["event"] == kind]


def _finding(event: Event, text: str) -> Finding:
    return Finding(event["engine"], event["machine"], event["t"], text)
