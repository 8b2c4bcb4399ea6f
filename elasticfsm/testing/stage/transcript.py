"""What happened on a stage, from the journals of all actors, in lines that a person reads from top to bottom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from elasticfsm.compile import Program

WIDTH = 110
QUIET = ("stepping", "idle", "waking")  # states of serving that come and go with every wave
STEPS = ("step.forward", "step.agree")


class Line(NamedTuple):
    """Who, and what."""

    who: tuple[str, ...]
    what: str


class Transcript:
    """Turns journal events, in the order in which they happened, into lines."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def lines(self, events: list[tuple[str, dict[str, Any]]]) -> list[str]:
        """The lines of some events; neighbours that say the same share one, and so do short ones of one actor."""
        folded: list[Line] = []
        for who, what in self._told(events):
            last = folded[-1] if folded else None
            if last and last.what == what and who not in last.who:
                folded[-1] = last._replace(who=(*last.who, who))
            elif last and last.who == (who,) and len(last.what) + len(what) < WIDTH - 20:
                folded[-1] = last._replace(what=f"{last.what}; {what}")
            else:
                folded.append(Line((who,), what))
        told = [f"{', '.join(line.who)}: {line.what}" for line in _joined(folded)]
        return [*told, *_served(events)]

    def _told(self, events: list[tuple[str, dict[str, Any]]]) -> Iterator[tuple[str, str]]:
        ways: dict[tuple[str, str], str] = {}
        for number, (who, event) in enumerate(events):
            kind, machine = event["event"], event["machine"]
            if kind == "receive":
                ways[who, machine] = f"received {event['message']}"
            elif kind == "leave":
                ways[who, machine] = event["guard"]
            elif kind == "enter":
                way = ways.pop((who, machine), "")
                if not self._usual(machine, event):
                    yield (
                        who,
                        self._entered(machine, event["state"], way) + self._sent(who, machine, events[number + 1 :]),
                    )
            elif (text := _simple(event)) is not None:
                yield who, self._of(machine, text)

    def _usual(self, machine: str, event: dict[str, Any]) -> bool:
        """Whether a state comes and goes with every wave; worth a line only where nothing else happens."""
        serving = machine.startswith("serving.") and event["state"] in QUIET
        return serving and (bool(self._program.coordinator) or event["came"] == event["state"])

    def _entered(self, machine: str, state: str, way: str) -> str:
        because = "" if way in ("", "done") else f"{way}, "
        return self._of(machine, f"{because}enters {state}")

    def _of(self, machine: str, text: str) -> str:
        own = not machine or machine.startswith(f"{self._program.name}.")
        return text if own else f"{machine} {text}"

    def _sent(self, who: str, machine: str, events: list[tuple[str, dict[str, Any]]]) -> str:
        """What goes out with entering the state."""
        found: dict[str, None] = {}
        for other, event in events:
            if other == who:
                if (event["event"], event["machine"]) != ("send", machine):
                    break
                found[event["message"]] = None
        return f", sends {', '.join(found)}" if found else ""


def _simple(event: dict[str, Any]) -> str | None:  # noqa: PLR0911 - one line an event
    match event["event"]:
        case "step.end":
            if event["step"].startswith(STEPS) and not event.get("error"):
                return None
            failed = event.get("error", "").partition(": ")[2]
            answer = f" = {event['answer']}" if event.get("answer") else ""
            if failed.startswith("withdrawn"):
                return f"{event['step']} is given up"
            return f"{event['step']} fails ({failed})" if failed else f"{event['step']}{answer}"
        case "cancel":
            return f"withdraws the list of {event['state']}"
        case "letter.dropped":
            return f"drops {event['message']} ({event['why']})" if event["message"] != "wake" else None
        case "operation.end":
            return f"the operation has ended: {event['end']}"
        case "operation.resume":
            return "goes on with the operation"
        case "unhandled":
            return f"ends, because nothing is said about this failure in {event['state']}"
        case "refused":
            return f"REFUSED {event['got']} on {event['group']}: the spec expects {event['expected']}"
        case "said":
            return str(event["text"])
    return None


def _joined(lines: list[Line]) -> list[Line]:
    """Neighbours that say the same, after short ones were put together."""
    found: list[Line] = []
    for line in lines:
        last = found[-1] if found else None
        if last and last.what == line.what and not set(last.who) & set(line.who):
            found[-1] = last._replace(who=last.who + line.who)
        else:
            found.append(line)
    return found


def _served(events: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """How many forward steps were taken, by generation."""
    steps: dict[str, Counter[str]] = {}
    for who, event in events:
        if event["event"] == "agreed":
            steps.setdefault(event["of"], Counter())[who] += 1
    names = {":0": "old", "op:1": "new"}
    return [
        f"({max(counts.values())} forward step{'s' if max(counts.values()) > 1 else ''} "
        f"of the {names.get(of, of)} generation: {', '.join(sorted(counts))})"
        for of, counts in steps.items()
    ]
