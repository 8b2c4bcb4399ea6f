"""What faults must not cost: the service, one decision, an end. Judged state by state; see `liveness` for the rest."""

from __future__ import annotations

from elasticfsm.check.known import Locals
from elasticfsm.check.tables import NEW, OLD
from elasticfsm.check.world import ABORTED, DONE, FAILURE, OTHER_END, RUNNING, Local, State, World


class Service:
    """Looks at single states of a world in which something may go wrong."""

    def __init__(self, world: World, known: Locals) -> None:
        self.world = world
        self.known = known
        self.old = set(world.members[OLD])
        self.new = set(world.members[NEW])
        self._parked: dict[int, bool] = {}
        self._tentative = any(step.means == "rename" and step.group == "retired" for step in world.tables.steps())

    def mourned(self, state: State) -> bool:
        """Whether an engine died without which the deployment cannot serve: some ends are excused then."""
        if self.world.bosses[state[0]].mourned:
            return True
        if self.world.regime.strict:
            return False
        dead = [self.world.locals[number] for number in state[1:-1] if self.world.locals[number].dead]
        return any(local.switched for local in dead)

    def refuted(self, state: State) -> list[str]:
        """The properties that this state refutes by itself."""
        found = []
        boss = self.world.bosses[state[0]]
        if boss.journal == DONE | ABORTED:
            found.append("decided_once")
        committed, aborted = self._sides(state)
        if committed and aborted:
            found.append("agreement")
        if not self.mourned(state) and any(self._lost(who, state[who + 1]) for who in range(self.world.count)):
            found.append("service_kept")
        return found

    def _sides(self, state: State) -> tuple[bool, bool]:
        """Whether somebody stands on the side of the commit, and somebody on that of the abort.

        An engine of the old generation that has switched is on the side of the commit, unless it has failed, a death
        will end it, or the protocol knows a way back.
        """
        ends = 0 if self.world.bosses[state[0]].down else self.world.end_of_boss(state[0])
        mourned, switched = self.mourned(state), False
        for who, number in enumerate(state[1:-1]):
            ends |= self.known[number].end
            stands = who in self.old and not self._tentative and self.known[number].end != OTHER_END
            switched = switched or (stands and self.world.locals[number].switched)
        return bool(ends & DONE) or (switched and not mourned), bool(ends & ABORTED)

    def _lost(self, who: int, number: int) -> bool:
        """Whether a living engine has stopped to serve, although it should go on."""
        local = self.world.locals[number]
        if local.dead or who not in self.old:
            return False
        if self.known[number].end == OTHER_END:
            return True
        over = self.known[number].end != RUNNING  # before that the operation may take it up again
        return over and who in self.new and not self._serves(local)

    def _serves(self, local: Local) -> bool:
        tables = self.world.machines[local.role]
        serving = [stand for table, stand in zip(tables, local.stands, strict=True) if table.serving]
        return not serving or all(stand is not None for stand in serving)

    def end(self, state: State) -> bool:
        """Whether the operation has ended, as well as can be hoped for.

        A coordinator that could not perform a step of its own may say that it failed, if all engines ended alike.
        """
        boss = self.world.bosses[state[0]]
        gone = boss.down and not self.world.regime.restart
        if not gone and (boss.down or self.world.end_of_boss(state[0]) == RUNNING):
            return False
        failed = not gone and self.world.end_of_boss(state[0]) == OTHER_END and not boss.spent[FAILURE]
        for who, number in enumerate(state[1:-1]):
            end = self.known[number].end
            if end == RUNNING and not (gone and self._rests(number)):
                return False
            failed = failed or (end == OTHER_END and who in self.old)
        return self.mourned(state) or (not failed and self._whole(state))

    def _rests(self, number: int) -> bool:
        """Whether an engine may stay so for ever when there is no coordinator any more: on purpose, and serving."""
        found = self._parked.get(number)
        if found is None:
            local = self.world.locals[number]
            state, stand = self.world.state_of(local, 0), local.stands[0]
            serves = self._serves(local) or not local.switched
            found = bool(state and stand and state.rests and not state.steps and serves)
            self._parked[number] = found
        return found

    def _whole(self, state: State) -> bool:
        """Whether one generation serves: all its members live and use it, and nobody uses the other."""
        local = [self.world.locals[number] for number in state[1:-1]]
        sides = {local[who].switched for who in self.old & self.new if not local[who].dead}
        if len(sides) > 1:
            return False
        members = self.new if True in sides else self.old
        return all(
            not local[who].dead and local[who].switched == (True in sides) and self._serves(local[who])
            for who in members
        )
