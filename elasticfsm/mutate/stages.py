"""The runs that mutants of a protocol have to survive, the cheapest first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec

from elasticfsm.check.world import CALM, Regime
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.protocol import Protocol, load, shipped

LIMIT = 400_000  # states of a run that numpy explores; the protocols themselves stay below a third of that
PLAIN = 100_000  # ... of any other
SIMPLER = {"serving": "abstract/busy", "rebalance": "abstract/still"}  # in the place of what, in runs with faults
AROUND = {"rebalance": "abstract/pausing"}  # an operation that does to a protocol what the others do, and nothing else
ANY = "arbitrary"
FAULTS = (
    Regime(cancel=True),
    Regime(expiry=ANY),
    Regime(failures=1, expiry=ANY),
    Regime(losses=1, expiry=ANY),
    Regime(duplicates=1, expiry=ANY),
    Regime(crashes=1, expiry=ANY),
    Regime(crashes=1, expiry=ANY, restart=True),
)


@dataclass(frozen=True)
class Stage:
    """One run: of the protocol by itself or `inside` one that stands on it; protocols that it is `over` are simpler."""

    sizes: str
    regime: Regime
    inside: str = ""
    over: tuple[str, ...] = ()
    fair: bool = False  # fair runs are looked for that never end, inside an operation of its own that never step again

    @property
    def engine(self) -> str:
        """The explorer that is faster here: many states with few local states among them are done by numpy."""
        many = self.over and self.regime.faults and find_spec("numpy") is not None
        return "vector" if many else "plain"

    @property
    def limit(self) -> int:
        """How many states a run may have."""
        return LIMIT if self.engine == "vector" else PLAIN

    @property
    def setting(self) -> Setting:
        """Which program it runs."""
        return self.inside, self.over

    def __str__(self) -> str:
        inside = f", inside {self.inside}" if self.inside else ""
        over = f", over {', '.join(SIMPLER[name] for name in self.over)}" if self.over else ""
        return f"{self.sizes}, {self.regime}{inside}{over}{', fair runs' if self.fair else ''}"


Setting = tuple[str, tuple[str, ...]]


def stages_of(protocol: Protocol, sizes: list[str] | None = None) -> list[Stage]:
    """An operation at 1+1, fault-free, with a cancel, with each kind of fault, and at 2+1; others inside operations."""
    program = compile_protocol(protocol)
    regimes = [regime for regime in (CALM, Regime(cancel=True)) if regime == CALM or _cancels(program)]
    if sizes:
        return [Stage(size, regime) for regime in regimes for size in sizes]
    if program.coordinator:
        return _of_operation(protocol, program, regimes)
    fails = [Regime(failures=1)] if any(machine.inside for machine in program.machines.values()) else []
    alone = [Stage(size, regime) for regime in (CALM, *fails) for size in ("1", "2")]
    return [*alone, *_inside(protocol.name)]


def _of_operation(protocol: Protocol, program: Program, regimes: list[Regime]) -> list[Stage]:
    one = "+".join("1" for _ in program.roles)
    more = "+".join(["2", *("1" for _ in program.roles)][: len(program.roles)])
    simpler = tuple(name for name in SIMPLER if name in protocol.over)
    faults = [Stage(one, regime, over=simpler) for regime in FAULTS if not regime.cancel or _cancels(program)]
    calm, *cancelled = (Stage(one, regime) for regime in regimes)
    queue = Stage(one, Regime(device="in_order"))
    fair = [replace(stage, fair=True) for stage in faults[:1] if stage.regime.cancel]
    return [calm, *faults[:1], *fair, queue, Stage(more, CALM), *faults[1:2], *cancelled, *faults[2:]]


def _inside(name: str) -> list[Stage]:
    """Runs of what an operation stands on, with all that goes wrong there."""
    found: list[Stage] = []
    if name in AROUND:
        around = AROUND[name]
        over = tuple(other for other in SIMPLER if other in load(around).over and other != name)
        found += [Stage("1", Regime(failures=1), around, over, fair=True)]
        found += [Stage(size, regime, around, over) for regime in (CALM, Regime(failures=1)) for size in ("1", "2")]
    above = [other for other in shipped() if name in load(other).over and _cancels(compile_protocol(load(other)))]
    found += [Stage("1+1", CALM, other) for other in above]
    for other in above:
        over = tuple(below for below in SIMPLER if below in load(other).over and below != name)
        found += [Stage("1+1", FAULTS[0], other, over)] if name not in AROUND else []
    return found


def _cancels(program: Program) -> bool:
    return any(route.sender == "operator" and route.message == "cancel" for route in program.routes)
