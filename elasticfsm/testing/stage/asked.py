"""What can be asked about a stage: how the operation has ended, whether all may rest, which facts are missing."""

from __future__ import annotations

from elasticfsm.seat import Seat
from elasticfsm.testing.stage.act import COORDINATOR
from elasticfsm.testing.stage.actors import Boss, Engine
from elasticfsm.testing.stage.gates import Gates, Standing
from elasticfsm.testing.stage.laws import Laws


class Asked:
    """The questions of a stage; it brings the actors, the laws and the gates."""

    engines: dict[str, Engine]
    boss: Boss | None
    laws: Laws
    gates: Gates

    def ends(self) -> dict[str, str]:
        """How the operation has ended, for all who live and have begun it; empty where it has not."""
        found = {e.name: e.ended() for e in self.engines.values() if e.alive and (e.ended() or e.began())}
        if self.boss is not None and self.boss.alive:
            found[COORDINATOR] = self.boss.seat.state if self.boss.seat.machine.ended else ""
        return found

    def over(self) -> bool:
        """Whether the operation has ended everywhere; without a coordinator, engines may rest in it as well."""
        if self.boss is None:
            return False
        left = [name for name, end in self.ends().items() if not end]
        return not left or (not self.boss.alive and all(self._rests(self.engines[name]) for name in left))

    def rests(self) -> bool:
        """Whether everything may stay as it is for ever: no list runs, and every phase says `within: forever`."""
        return (self.boss is None or not any(not end for end in self.ends().values())) and all(
            self._rests(e) for e in self.engines.values() if e.alive
        )

    def _rests(self, engine: Engine) -> bool:
        for held in engine.held.values():
            at = held.seat.at
            if at is None or at.end:
                continue
            if at.within != "forever" or held.seat.job is not None:
                return False
        return engine.main.idle

    def look_at_facts(self) -> None:
        """Notes the facts that must hold now and do not: those that machines hold, and those of steps under way."""
        for engine in self.engines.values():
            for held in engine.held.values() if engine.alive else ():
                seat = held.seat
                missing = [f for f in seat.machine.spec.holds if not self.laws.holds(engine.name, f)]
                if seat.at is not None and not seat.at.end:
                    self.laws.short(missing, f"{engine.name}: {seat.name} stands in `{seat.state}`")
                standing = self.at(seat)
                if standing is not None and standing.inside:
                    self.laws.require(engine.name, standing.step)

    def at(self, seat: Seat) -> Standing | None:
        """The gate at which the list of a seat stands."""
        return self.gates.standing.get(seat.job.cancel) if seat.job is not None else None
