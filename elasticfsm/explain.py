"""Who waits for whom, since when, and what the spec expected: read from the journals of a stuck or dead run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from elasticfsm.compile import COORDINATOR
from elasticfsm.journal import Event, read
from elasticfsm.machine import ABSENT
from elasticfsm.meetings import collectives, group_of, members
from elasticfsm.protocol import Machine, Step
from elasticfsm.scene import Scene, scene
from elasticfsm.trace import machines_of


class Wait(msgspec.Struct, frozen=True):
    """One thing that an engine waits for: since how many seconds before the run's last event, and for which engines."""

    engine: str
    machine: str
    state: str
    what: str
    seconds: float
    missing: tuple[str, ...] = ()


class Standing(msgspec.Struct, frozen=True):
    """Where a machine stood at the end, since when, and the ways out that the spec has from there."""

    machine: str
    state: str
    seconds: float
    step: str
    expects: tuple[str, ...]


class EngineReport(msgspec.Struct, frozen=True):
    """One engine: how long before the run's last event its own last one was, its last error, where it stood."""

    engine: str
    silent: float
    last: str
    closed: bool
    error: str
    standing: tuple[Standing, ...]


class Explanation(msgspec.Struct, frozen=True):
    """All of it. `blamed` are the engines that died, and those that others wait for and that wait for nobody.

    `dead` are the engines that the coordinator has declared dead, with its reason: a dead engine waits for nobody.
    """

    waits: tuple[Wait, ...]
    blamed: tuple[str, ...]
    engines: tuple[EngineReport, ...]
    dead: dict[str, str] = {}

    def json(self) -> bytes:
        """The explanation as JSON."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2)


def explain(directory: Path | str, machines: Mapping[str, Machine] | None = None) -> Explanation:
    """Explains the journals in a directory; raises `ElasticError` when there are none."""
    journals = read(directory)
    known = machines_of(journals) if machines is None else machines
    now = max((int(event["t"]) for events in journals.values() for event in events), default=0)
    scenes = {engine: scene(events) for engine, events in journals.items() if events}
    waits = [*_collectives(journals, scenes, now), *_steps(journals, scenes, known, now)]
    waits += _states(scenes, journals, known, now)
    dead = {
        str(event["source"]): str(event.get("error", ""))
        for events in journals.values()
        for event in events
        if event["event"] == "dead"
    }
    waits = sorted((wait for wait in waits if wait.engine not in dead), key=lambda wait: -wait.seconds)
    waiting = {wait.engine for wait in waits if wait.missing}
    blamed = sorted({engine for wait in waits for engine in wait.missing} - waiting | dead.keys())
    reports = tuple(_report(engine, each, known, now) for engine, each in scenes.items())
    return Explanation(tuple(waits), tuple(blamed), reports, dead)


def _collectives(journals: Mapping[str, list[Event]], scenes: Mapping[str, Scene], now: int) -> list[Wait]:
    """Collectives that were entered and not left, and the members that never entered them."""
    issued = collectives(journals)
    belongs = members(journals)
    found = []
    for engine, each in scenes.items():
        for event in each.inside:
            group = group_of(event)
            number = next(i for i, one in enumerate(issued[group][engine]) if one is event)
            everybody = belongs.get(group[1], tuple(issued[group]))
            missing = [one for one in everybody if len(issued[group].get(one, ())) <= number]
            what = f"{event['op']} on {event['group']} (number {number} of {group[1]}) in step {event.get('step', '?')}"
            found.append(
                Wait(engine, event["machine"], event.get("state", ""), what, _ago(event, now), tuple(sorted(missing)))
            )
    return found


def _steps(
    journals: Mapping[str, list[Event]], scenes: Mapping[str, Scene], machines: Mapping[str, Machine], now: int
) -> list[Wait]:
    """Steps that wait for others outside of a collective: groups.create meets its peers, an `await` waits for facts."""
    belongs = members(journals)
    found = []
    for engine, each in scenes.items():
        for event in each.steps.values():
            if any(one["machine"] == event["machine"] for one in each.inside):
                continue
            step = _step(event, machines)
            everybody = belongs.get(each.standby if step.argument == "standby" else each.active, ())
            missing: list[str] = []
            if step.meaning.means == "rendezvous":
                begun = {
                    one for one in everybody if (event["operation"], str(step)) in scenes[one].begun if one in scenes
                }
                missing = [one for one in everybody if one not in begun]
            facts = step.facts("awaits")
            what = f"step {step}" + (f" (until {', '.join(facts)})" if facts else "")
            found.append(Wait(engine, event["machine"], event["state"], what, _ago(event, now), tuple(sorted(missing))))
    return found


def _states(
    scenes: Mapping[str, Scene], journals: Mapping[str, list[Event]], machines: Mapping[str, Machine], now: int
) -> list[Wait]:
    """States without a running step that wait for messages of others, or for a vote of everybody."""
    belongs = members(journals)
    found = []
    for engine, each in scenes.items():
        everybody = belongs.get(each.active, tuple(scenes))
        for name, event in each.entered.items():
            at = machines[name].states.get(event["state"]) if name in machines else None
            if at is None or at.end or name in each.steps or (at.within in ("", "forever") and not at.asked()):
                continue
            for way in at.leave:
                missing: list[str] = []
                if way.guard.kind in ("all", "all alive"):
                    missing = _unheard(name, way.guard.name, each, machines)
                elif way.guard.kind == "agreed":
                    missing = [
                        one for one in everybody if one in scenes and way.guard.name not in scenes[one].asks(machines)
                    ]
                elif way is at.leave[0] and _sends(machines, f"{name.partition('.')[0]}.{COORDINATOR}", way.guard.name):
                    missing = [COORDINATOR]
                if missing:
                    found.append(Wait(engine, name, at.name, str(way.guard), _ago(event, now), tuple(sorted(missing))))
    return found


def _unheard(machine: str, message: str, each: Scene, machines: Mapping[str, Machine]) -> list[str]:
    """The living engines of the roles that send this message to the coordinator, and have not."""
    protocol = machine.partition(".")[0]
    heard = {source for what, source in each.arrived if what in (message, "died", "lost")}
    roles = [role for role in each.engines if _sends(machines, f"{protocol}.{role}", message)]
    return [engine for role in roles for engine in each.engines[role] if engine not in heard]


def _sends(machines: Mapping[str, Machine], machine: str, message: str) -> bool:
    spec = machines.get(machine)
    return spec is not None and any(message in state.sends for state in spec.states.values())


def _report(engine: str, each: Scene, machines: Mapping[str, Machine], now: int) -> EngineReport:
    last = each.last
    standing = []
    for name, event in each.entered.items():
        at = machines[name].states.get(event["state"]) if name in machines else None
        expects = tuple(f"{way.guard} -> {way.target}" for way in at.leave) if at is not None else ()
        step = each.steps.get(name)
        standing.append(Standing(name, event["state"], _ago(event, now), step["step"] if step else "", expects))
    described = f"{last['event']} {last['machine'] or last.get('group', '')} {last.get('state', '')}".strip()
    return EngineReport(engine, _ago(last, now), described, each.closed, each.error, tuple(standing))


def _step(event: Event, machines: Mapping[str, Machine]) -> Step:
    """The step of an event: as its state has it, else as the shipped vocabulary does."""
    spec = machines.get(event["machine"])
    at = spec.states.get(event["state"]) if spec is not None else None
    name, _, argument = str(event["step"]).partition(": ")
    return next((one for one in at.steps if str(one) == event["step"]) if at else iter(()), Step(name, argument))


def _ago(event: Event, now: int) -> float:
    return round((now - int(event["t"])) / 1e9, 3)


def text(explanation: Explanation) -> str:
    """The explanation in words, the longest wait first."""
    lines = [] if explanation.waits else ["nobody waits for anybody"]
    for wait in explanation.waits:
        whom = f"; never came: {', '.join(wait.missing)}" if wait.missing else ""
        where = f"{wait.machine} in `{wait.state}`" if wait.machine else "outside of any step"
        lines.append(f"{wait.engine}: {where} waits since {wait.seconds:.2f} s for {wait.what}{whom}")
    if explanation.dead:
        lines += ["", *(f"{engine} died: {reason}" for engine, reason in explanation.dead.items())]
    idle = [engine for engine in explanation.blamed if engine not in explanation.dead]
    if idle:
        lines += ["", f"others wait for {', '.join(idle)}, who wait for nobody:"]
    for report in explanation.engines:
        lines += ["", *_lines(report)]
    return "\n".join(lines)


def _lines(report: EngineReport) -> list[str]:
    ended = "its journal was closed" if report.closed else "its journal was not closed"
    lines = [f"{report.engine}: last event {report.silent:.2f} s before the end of the run ({report.last}); {ended}"]
    if report.error:
        lines.append(f"  last error: {report.error.splitlines()[-1]}")
    for one in report.standing:
        doing = f", in step {one.step}" if one.step else ""
        lines.append(f"  {one.machine} in `{one.state}` since {one.seconds:.2f} s{doing}")
        if one.expects:
            lines.append(f"    the spec expects {', or '.join(one.expects)}")
    return lines or [f"  {ABSENT}"]
