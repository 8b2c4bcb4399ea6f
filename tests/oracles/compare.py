"""Compares the verdicts of SPIN with those of `elasticfsm check`, property by property, and the numbers of states."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from elasticfsm.check.verdict import Run, run
from elasticfsm.check.world import Regime, sizes_of
from elasticfsm.compile import Program
from elasticfsm.export.spin import JUDGED_BY_ASSERTION, Verdict, judge

# SPIN has no EF: it sees `good_end` only where a machine ends as `failed`, and `commits` not at all.
BOTH_WAYS = (*JUDGED_BY_ASSERTION, "no_deadlock")
ONE_WAY = ("good_end",)


@dataclass
class Row:
    """One protocol or patch at one size under one regime, judged twice."""

    name: str
    sizes: str
    regime: str
    spin: Verdict
    states: int
    complete: bool
    reduced_states: int
    refuted: set[str]
    seconds: float
    reduced_seconds: float
    disagree: list[str] = field(default_factory=list)

    def data(self) -> dict[str, Any]:
        """The row for --json."""
        return {
            "name": self.name,
            "sizes": self.sizes,
            "regime": self.regime,
            "spin": {
                "states": self.spin.states,
                "complete": self.spin.complete,
                "refuted": sorted(self.spin.refuted),
                "seconds": {stage: round(seconds, 2) for stage, seconds in self.spin.seconds.items()},
                "megabytes": self.spin.megabytes,
            },
            "ours": {
                "states": self.states,
                "complete": self.complete,
                "states_reduced": self.reduced_states,
                "refuted": sorted(self.refuted),
                "seconds": round(self.seconds, 2),
                "seconds_reduced": round(self.reduced_seconds, 2),
            },
            "disagree": self.disagree,
        }


def compare(
    name: str, program: Program, sizes: str, cancel: bool, limit: int, megabytes: int = 4096, limit_s: float = 120
) -> Row:
    """Judges twice. Ours is unreduced up to `limit` states, so that the numbers can be compared, and reduced."""
    engines, regime = sizes_of(program, sizes), Regime(cancel=cancel)
    with TemporaryDirectory() as folder:
        spin = judge(program, engines, cancel, Path(folder), megabytes, limit_s)
    reduced, reduced_s = _timed(program, engines, regime, True, limit)
    whole, whole_s = (
        _timed(program, engines, regime, False, limit) if spin.counted and spin.states <= limit else (reduced, 0.0)
    )
    row = Row(
        name=name,
        sizes=sizes,
        regime=str(regime),
        spin=spin,
        states=whole.states if whole is not reduced else 0,
        complete=whole.complete and reduced.complete,
        reduced_states=reduced.states,
        refuted=set(whole.refuted) | set(reduced.refuted),
        seconds=whole_s,
        reduced_seconds=reduced_s,
    )
    row.disagree = list(_disagreements(row, set(whole.refuted) ^ set(reduced.refuted)))
    return row


def _timed(program: Program, engines: dict[str, int], regime: Regime, reduced: bool, limit: int) -> tuple[Run, float]:
    """A run of our checker and its CPU seconds."""
    began = time.process_time()
    found = run(program, engines, regime, reduced, limit)
    return found, time.process_time() - began


def _disagreements(row: Row, by_reduction: set[str]) -> list[str]:
    found = []
    for name in (*BOTH_WAYS, *ONE_WAY):
        ours, theirs = name in row.refuted, name in row.spin.refuted
        if theirs and not ours and row.complete:
            found.append(f"{name}: SPIN refutes it, we do not")
        if ours and not theirs and row.spin.complete and name in BOTH_WAYS:
            found.append(f"{name}: we refute it, SPIN does not")
    found += [f"{name}: refuted only with or only without reduction" for name in sorted(by_reduction) if row.complete]
    if row.states and row.complete and row.spin.counted and row.states != row.spin.states:
        found.append(f"SPIN stored {row.spin.states:,} states, we reached {row.states:,}")
    return found
