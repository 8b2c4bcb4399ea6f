"""What faults must not cost: the service, one decision, an end. Judged state by state; see `liveness` for the rest.

What is looked for is always whether some engine stands so, or none: each engine bears a few signs, as bits, and a state
is judged by its coordinator and by the signs that somebody bears. So cases are few, whatever the number of engines.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import NamedTuple

from elasticfsm.check.known import Locals
from elasticfsm.check.tables import NEW, OLD
from elasticfsm.check.world import ABORTED, DONE, FAILURE, OTHER_END, RUNNING, Local, State, World

ENDS = 31  # the signs below these: how the operation's machine stands (ABSENT to RUNNING)
COMMITTED = 1 << 5  # one of the old generation has switched, and nothing leads back
MOURNED = 1 << 6  # dead, and what it contributed to the join was made use of
LOST = 1 << 7  # it lives and has stopped to serve, although it should go on
BUSY = 1 << 8  # it runs, and may not stay so for ever without a coordinator
FAILED = 1 << 9  # one of the old generation has ended as failed
NOT_NEW = 1 << 10  # a member of the new generation that does not serve in it
NOT_OLD = 1 << 11  # ... of the old one
ON_NEW, ON_OLD = 1 << 12, 1 << 13  # a member of both that lives: which one it uses
BAD = 14  # from here on one bit for each property that an engine refutes by itself


class Judged(NamedTuple):
    """What is said of one state: refuted properties, how everybody stands (as bits), whether it is a good end."""

    refuted: tuple[str, ...]
    ends: int
    good: bool


class Service:
    """Looks at single states of a world in which something may go wrong."""

    def __init__(self, world: World, known: Locals) -> None:
        self.world = world
        self.known = known
        self._old, self._new = (world.tables.members(generation) for generation in (OLD, NEW))
        self._tentative = any(step.means == "rename" and step.group == "retired" for step in world.tables.steps())
        self._names: list[str] = []
        self._signs: dict[int, int] = {}
        self._judged: dict[tuple[int, int], Judged] = {}

    def judge(self, state: State) -> Judged:
        """What is said of a state."""
        return self.judged(state[0], reduce(or_, [self.signs(number) for number in state[1:-1]], 0))

    def mourned(self, state: State) -> bool:
        """Whether an engine died without which the deployment cannot serve: some ends are excused then."""
        return self._mourned(state[0], reduce(or_, [self.signs(number) for number in state[1:-1]], 0))

    def judged(self, boss: int, signs: int) -> Judged:
        """What is said of the states with this coordinator in which engines bear these signs."""
        found = self._judged.get((boss, signs))
        if found is None:
            ends = self.world.end_of_boss(boss) | signs & ENDS
            bad = [name for place, name in enumerate(self._names) if signs >> BAD + place & 1]
            refuted = tuple(dict.fromkeys([*bad, *self._refuted(boss, signs)]))
            found = self._judged[boss, signs] = Judged(refuted, ends, self._good(boss, signs))
        return found

    def signs(self, number: int) -> int:
        """The signs that an engine bears in this local state."""
        found = self._signs.get(number)
        if found is None:
            found = self._signs[number] = self._of(self.world.locals[number], number)
        return found

    def _of(self, local: Local, number: int) -> int:
        known, role = self.known[number], self.world.tables.roles[local.role]
        old, new, serves = role in self._old, role in self._new, self._serves(local)
        failed = known.end == OTHER_END
        idle = known.end != RUNNING and new and not serves  # before its end the operation may take it up again
        lost = not local.dead and old and (failed or idle)
        found = known.end | LOST * lost | FAILED * (failed and old) | MOURNED * (local.dead and local.switched)
        found |= COMMITTED * (old and local.switched and not failed and not self._tentative)
        found |= BUSY * (known.end == RUNNING and not self._rests(local))
        found |= NOT_NEW * (new and (local.dead or not local.switched or not serves))
        found |= NOT_OLD * (old and (local.dead or local.switched or not serves))
        found |= (ON_NEW if local.switched else ON_OLD) * (old and new and not local.dead)
        for name in known.bad:
            if name not in self._names:
                self._names.append(name)
            found |= 1 << BAD + self._names.index(name)
        return found

    def _mourned(self, boss: int, signs: int) -> bool:
        return self.world.bosses[boss].mourned or (bool(signs & MOURNED) and not self.world.regime.strict)

    def _refuted(self, number: int, signs: int) -> list[str]:
        """The properties that such a state refutes by itself."""
        boss, mourned = self.world.bosses[number], self._mourned(number, signs)
        ends = signs & ENDS | (0 if boss.down else self.world.end_of_boss(number))
        committed = ends & DONE or (signs & COMMITTED and not mourned)
        found = ["decided_once"] if boss.journal == DONE | ABORTED else []
        found += ["agreement"] if committed and ends & ABORTED else []
        return found + (["service_kept"] if signs & LOST and not mourned else [])

    def _good(self, number: int, signs: int) -> bool:
        """Whether the operation has ended, as well as can be hoped for.

        A coordinator that could not perform a step of its own may say that it failed, if all engines ended alike.
        """
        boss, end = self.world.bosses[number], self.world.end_of_boss(number)
        gone = boss.down and not self.world.regime.restart
        if not gone and (boss.down or end == RUNNING):
            return False
        mourned = self._mourned(number, signs)
        left = gone or (mourned and end == OTHER_END)  # nobody will tell them anything: the whole deployment ends
        if signs & RUNNING and (not left or signs & BUSY):
            return False
        failed = signs & FAILED or (not gone and end == OTHER_END and not boss.spent[FAILURE])
        return mourned or (not failed and self._whole(signs))

    def _whole(self, signs: int) -> bool:
        """Whether one generation serves: all its members live and use it, and nobody uses the other."""
        if signs & ON_NEW and signs & ON_OLD:
            return False
        return not signs & (NOT_NEW if signs & ON_NEW else NOT_OLD)

    def _serves(self, local: Local) -> bool:
        tables = self.world.machines[local.role]
        serving = [stand for table, stand in zip(tables, local.stands, strict=True) if table.serving]
        return not serving or all(stand is not None for stand in serving)

    def _rests(self, local: Local) -> bool:
        """Whether an engine may stay so for ever when there is no coordinator any more: on purpose, and serving."""
        state, stand = self.world.state_of(local, 0), local.stands[0]
        serves = self._serves(local) or not local.switched
        return bool(state and stand and state.rests and not state.steps and serves)
