"""What is proved for every size, and what is not: which properties views can see, and how a verdict comes about."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from elasticfsm.check.allsizes.moving import Moving
from elasticfsm.check.allsizes.stuck import stuck
from elasticfsm.check.allsizes.telling import tell_stuck, tell_way
from elasticfsm.check.allsizes.views import Views
from elasticfsm.check.transition import Interrupted
from elasticfsm.check.verdict import applicable, run
from elasticfsm.check.world import CALM, Regime
from elasticfsm.compile import Program

SEEN = (  # the others ask what one system does next, or how something ended: views do not tell
    "no_deadlock",
    "agreement",
    "no_leak",
    "collective_order",
    "membership",
    "contracts",
    "no_use_after_destroy",
    "no_transfer_at_switch",
    "placement",
    "coverage",
    "requests_kept",
)
MAX_VIEWS = 400_000
PROVED, NOT_PROVED, INCONCLUSIVE = "proved for all sizes", "not proved", "inconclusive"


@dataclass
class Proof:
    """What was found for one protocol in one regime; `verdicts` of the properties that views can see."""

    protocol: str
    regime: str
    views: int
    seconds: float
    complete: bool
    verdicts: dict[str, str] = field(default_factory=dict)
    told: dict[str, list[str]] = field(default_factory=dict)

    @property
    def proved(self) -> bool:
        """Whether every property that views can see was proved."""
        return all(verdict == PROVED for verdict in self.verdicts.values())


def prove(program: Program, regime: Regime = CALM, limit: int = MAX_VIEWS) -> Proof:
    """Proves what can be proved of a program at every size; takes seconds. ValueError with faults or one device queue.

    A property that some view refutes may hold all the same: views mix what no single system shows. After such a one
    nothing is claimed about the others, since the reductions count on nothing being wrong.
    """
    if regime.faults or regime.device != "concurrent":
        raise ValueError(f"no proof for all sizes under {regime}: guards then ask more than who stands where")
    began = time.process_time()
    views, moving = explored(program, regime, limit)
    found = views.found
    proof = Proof(program.name, str(regime), len(found.parents), 0.0, found.complete)
    names = [name for name in applicable(program, regime) if name in SEEN]
    proof.told = {name: tell_way(views, finding) for name, finding in found.findings.items()}
    if found.complete:
        ends = stuck(moving)
        if ends is not None:
            proof.told.setdefault("no_deadlock", tell_stuck(views, *ends))
    alone = _alone(program, regime)
    for name in (*names, *(name for name in proof.told if name not in names)):
        if name in proof.told:
            proof.verdicts[name] = NOT_PROVED
        elif name in alone or found.findings or not found.complete:
            proof.verdicts[name] = INCONCLUSIVE
        else:
            proof.verdicts[name] = PROVED
    proof.seconds = time.process_time() - began
    return proof


def explored(
    program: Program, regime: Regime, limit: int = MAX_VIEWS, reduced: bool = True, prompt: bool = True
) -> tuple[Views, Moving]:
    """All views of a program, or more than `limit` of them; the bold reductions are given up if they do not hold."""
    for bold in (True, False):
        views = Views(program, regime, reduced, prompt, bold)
        moving = Moving(views)
        try:
            _close(views, moving, limit)
        except Interrupted:
            continue
        break
    return views, moving


def _close(views: Views, moving: Moving, limit: int) -> None:
    views.initial()
    while (view := views.next()) is not None:
        moving.look(view)
        if len(views.found.parents) > limit:
            views.found.complete = False
            return


def _alone(program: Program, regime: Regime) -> set[str]:
    """The properties that one engine by itself refutes: a single engine has no view with another one."""
    if len(program.roles) > 1:
        return set()
    return set(run(program, dict.fromkeys(program.roles, 1), regime).refuted)
