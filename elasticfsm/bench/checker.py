"""What the checker costs: seconds to a verdict, states a second of both explorers, sizes within a time, and SPIN."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from elasticfsm.check.allsizes.prove import PROVED, prove
from elasticfsm.check.engine import explored
from elasticfsm.check.plan import CANCEL
from elasticfsm.check.verdict import run
from elasticfsm.check.world import CALM, Regime, World, sizes_of
from elasticfsm.compile import program
from elasticfsm.export import spin
from elasticfsm.protocol import shipped

LADDER = {1: ("1", "2", "3", "4", "5", "6"), 2: ("1+1", "2+1", "1+2", "2+2", "3+2", "2+3", "3+3", "4+3", "4+4")}
# protocol, sizes, regime, reduced, states at which both explorers stop
RACES: tuple[tuple[str, str, Regime, bool, int | None], ...] = (
    ("rebalance", "3", CALM, False, None),
    ("scale_up", "2+1", CALM, False, 1_000_000),
    ("scale_up", "2+1", CANCEL, True, None),
    ("scale_down", "2+1", CANCEL, True, None),
)
JUDGED_TWICE = (("serving", "3"), ("rebalance", "2"), ("scale_up", "1+1"), ("scale_down", "1+1"))
Tell = Callable[[str], None]


class Verdict(msgspec.Struct, frozen=True):
    """One run of the checker to its verdict, in CPU seconds."""

    protocol: str
    sizes: str
    regime: str
    states: int
    seconds: float
    holds: bool


class ForAll(msgspec.Struct, frozen=True):
    """A proof for every size, in CPU seconds; `proved` and `not_proved` are properties."""

    protocol: str
    regime: str
    views: int
    seconds: float
    proved: list[str]
    not_proved: list[str]


class Race(msgspec.Struct, frozen=True):
    """Both explorers on the same world, one after the other, several times; medians of CPU seconds."""

    protocol: str
    sizes: str
    regime: str
    reduced: bool
    states: int
    plain: float
    vector: float

    @property
    def ratio(self) -> float:
        """How many times more states a second the vectorised one explores: medians of states by seconds."""
        return self.plain / self.vector


class Reach(msgspec.Struct, frozen=True):
    """The largest size that was explored to the end within `within` CPU seconds, and what the next one came to."""

    protocol: str
    regime: str
    within: float
    sizes: str
    states: int
    seconds: float
    not_finished: str


class Oracle(msgspec.Struct, frozen=True):
    """SPIN on the exported model and ours on the same size, in CPU seconds; both see every state once."""

    protocol: str
    sizes: str
    states: int
    export: float
    compile: float
    run: float
    plain: float
    vector: float
    reduced: float


class Report(msgspec.Struct):
    """All figures."""

    for_all: list[ForAll]
    verdicts: list[Verdict]
    races: list[Race]
    reaches: list[Reach]
    oracle: list[Oracle]


class TimeUp(Exception):
    """A run took longer than it may."""


def measure(names: list[str], repeats: int, within: float, tell: Tell) -> Report:
    """Runs everything for these protocols (all shipped ones if none is named); takes minutes, blocks."""
    chosen = names or list(shipped())
    races = [race for race in RACES if race[0] in chosen]
    judged = [one for one in JUDGED_TWICE if one[0] in chosen] if spin.available() else []
    return Report(
        for_all=[_for_all(name, tell) for name in chosen],
        verdicts=[found for name in chosen for found in _verdicts(name, tell)],
        races=[_race(*race, repeats=repeats, tell=tell) for race in races],
        reaches=[found for name in chosen for found in _reaches(name, within, tell)],
        oracle=[_oracle(name, sizes, tell) for name, sizes in judged],
    )


def _regimes(name: str) -> list[Regime]:
    cancels = any((route.sender, route.message) == ("operator", "cancel") for route in program(name).routes)
    return [CALM, CANCEL] if cancels else [CALM]


def _for_all(name: str, tell: Tell) -> ForAll:
    tell(f"proof for all sizes of {name}")
    proof = prove(program(name))
    proved = [one for one, verdict in proof.verdicts.items() if verdict == PROVED]
    rest = [one for one in proof.verdicts if one not in proved]
    return ForAll(name, proof.regime, proof.views, proof.seconds, proved, rest)


def _verdicts(name: str, tell: Tell) -> Iterator[Verdict]:
    """The smallest sizes of each protocol, under every regime without faults."""
    whole = program(name)
    for regime in _regimes(name):
        for sizes in LADDER[len(whole.roles)][:2]:
            tell(f"verdict on {name} {sizes}, {regime}")
            began = time.process_time()
            found = run(whole, sizes_of(whole, sizes), regime)
            yield Verdict(name, sizes, str(regime), found.states, time.process_time() - began, not found.refuted)


def _race(name: str, sizes: str, regime: Regime, reduced: bool, limit: int | None, repeats: int, tell: Tell) -> Race:
    whole = program(name)
    rates: dict[str, list[float]] = {"plain": [], "vector": []}
    states = 0
    for turn in range(repeats):
        for engine, found in rates.items():
            tell(f"{engine} on {name} {sizes}, {regime}, {turn + 1} of {repeats}")
            began = time.process_time()
            graph = explored(World(whole, sizes_of(whole, sizes), regime), reduced, limit, engine=engine)
            states = len(graph.states)
            found.append((time.process_time() - began) / states)
    plain, vector = (statistics.median(rates[engine]) * states for engine in ("plain", "vector"))
    return Race(name, sizes, str(regime), reduced, states, plain, vector)


def _reaches(name: str, within: float, tell: Tell) -> Iterator[Reach]:
    whole = program(name)
    for regime in _regimes(name):
        best, told = ("none", 0, 0.0), ""
        for sizes in LADDER[len(whole.roles)]:
            tell(f"how far {name} comes in {within:g} s, {regime}: {sizes}")
            began = time.process_time()
            seen = 0

            def watch(states: int, began: float = began) -> None:
                nonlocal seen
                seen = states
                if time.process_time() - began > within:
                    raise TimeUp

            try:
                states = run(whole, sizes_of(whole, sizes), regime, progress=watch).states
            except TimeUp:
                told = f"{sizes} beyond {seen:,} states"
                break
            taken = time.process_time() - began
            if taken > within:
                told = f"{sizes} took {taken:.0f} s"
                break
            best = (sizes, states, taken)
        yield Reach(name, str(regime), within, *best, told)


def _oracle(name: str, sizes: str, tell: Tell) -> Oracle:
    tell(f"SPIN on {name} {sizes}")
    whole = program(name)
    engines = sizes_of(whole, sizes)
    with TemporaryDirectory() as folder:
        found = spin.judge(whole, engines, False, Path(folder))
    seconds = []
    for engine, reduced in (("plain", False), ("vector", False), ("auto", True)):
        tell(f"ours on {name} {sizes}: {engine}, {'reduced' if reduced else 'all states'}")
        began = time.process_time()
        run(whole, engines, CALM, reduced, engine=engine)
        seconds.append(time.process_time() - began)
    stages = found.seconds
    both = stages["run"] + stages["silent run"]
    return Oracle(name, sizes, found.states, stages["export"], stages["spin"] + stages["gcc"], both, *seconds)
