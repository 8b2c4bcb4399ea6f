"""The rules of the stateful test: micro-steps in any order, with requests, rebalances and one cancel at any moment."""

from __future__ import annotations

import random
from collections.abc import Mapping

from hypothesis import note
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from elasticfsm.compile import Program
from elasticfsm.testing import World
from elasticfsm.testing.world import Action

NEVER = 1_000_000
SEEDS = st.integers(0, 2**32 - 1)


def sensible(options: list[str], chance: random.Random) -> str:
    """An answer of a step; whether an operation is possible at all is not what is tested here."""
    return chance.choice([option for option in options if option != "impossible"])


class Operation(RuleBasedStateMachine):
    """One operation at one of several sizes; a subclass sets the program and the sizes."""

    program: Program
    sizes: tuple[Mapping[str, int], ...]

    @initialize(size=st.integers(0, 99), seed=SEEDS, moment=st.one_of(st.integers(0, 1200), st.just(NEVER)))
    def begin(self, size: int, seed: int, moment: int) -> None:
        counts = self.sizes[size % len(self.sizes)]
        note(f"{self.program.name} {dict(counts)}, seed {seed}")
        self.chance = random.Random(seed)
        self.world = World(self.program, counts, lambda options: sensible(options, self.chance))
        self.cancelled = False
        self.moment = moment  # the operator loses patience at this micro-step, if the operation still runs

    @rule(seed=SEEDS, count=st.integers(1, 60))
    def run(self, seed: int, count: int) -> None:
        """Some micro-steps in the order of that seed."""
        chance = random.Random(seed)
        for _ in range(count):
            actions = self.world.actions()
            if not actions:
                return
            self.world.act(chance.choice(actions))

    @rule(who=st.integers(0, 99), count=st.integers(1, 25))
    def race(self, who: int, count: int) -> None:
        """One engine (or the coordinator) runs ahead as far as it can, all others stand."""
        names = [*self.world.players, "coordinator"]
        for _ in range(count):
            own = [action for action in self.world.actions() if action.who == names[who % len(names)]]
            if not own:
                return
            self.world.act(own[0])

    @precondition(lambda self: not self.cancelled)
    @rule()
    def cancel(self) -> None:
        self.cancelled = True
        self.world.cancel()

    @rule(who=st.integers(0, 99))
    def request(self, who: int) -> None:
        self.world.request(list(self.world.players)[who % len(self.world.players)])

    @rule()
    def due(self) -> None:
        for engine in self.world.players:
            self.world.due(engine)

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        """Whatever happened: if everybody goes on, the operation ends well and everybody serves or has left."""
        if hasattr(self, "world"):
            self.world.drive(self.pick)

    def pick(self, actions: list[Action]) -> Action:
        """The next micro-step on the way to the end."""
        if not self.cancelled and len(self.world.trace) >= self.moment:
            self.cancel()
        return self.chance.choice(actions)
