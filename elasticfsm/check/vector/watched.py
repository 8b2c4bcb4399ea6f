"""The plain code, run on numbers that note how they are looked at."""

from __future__ import annotations

from typing import Any

from elasticfsm.check.future import Future
from elasticfsm.check.successors import Successors
from elasticfsm.check.vector.views import Ref, View, real
from elasticfsm.check.world import State


class Watched(Successors):
    """Successors whose states may hold a `Ref` in the place of any number; what it says is what `plain` says."""

    def __init__(self, plain: Successors) -> None:
        super().__init__(plain.world, plain.safe)
        self.plain = plain
        self.world: Any = _World(plain.world)
        self.known: Any = _Known(plain.known)
        self.future = _Future(plain.future)
        self._boss = plain._boss

    def change(self, what: str, number: Any, *how: object) -> Any:
        """A change of a local state, to be made later on all states at once."""
        if isinstance(number, Ref):
            return number.then((what, *map(real, how)))
        return self.plain.change(what, number, *map(real, how))

    def turn(self, what: str, number: Any, *how: int) -> Any:
        """A change of the coordinator's state, likewise."""
        if isinstance(number, Ref):
            return number.then((what, *map(real, how)))
        return self.plain.turn(what, number, *map(real, how))

    def _coordinator(self, state: State) -> Any:
        """By the coordinator's number as such, so that its moves are those of `plain`."""
        return super()._coordinator((real(state[0]), *state[1:]))

    def _settled_course(self, state: State) -> bool:
        """Not remembered: what it looked at must be noted each time."""
        return bool(self.world.bold and not self.world.regime.faults and self._course(state))


class _Known:
    """What is known about local states, noted when it is a `Ref` that is asked about."""

    def __init__(self, known: Any) -> None:
        self._known = known

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, Ref):
            return number.view(("known",), self._known[number.peek()])
        return self._known[number]


class _Locals:
    """The list of local states, or of the coordinator's, likewise."""

    def __init__(self, found: list[Any]) -> None:
        self._found = found

    def __getitem__(self, number: Any) -> Any:
        if isinstance(number, Ref):
            return number.view(("local",), self._found[number.peek()])
        return self._found[number]


class _Asked:
    """An object of which some method is asked about a number: the answer is noted, not the number."""

    def __init__(self, real_one: Any) -> None:
        self._real = real_one

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._real, name)
        return _noted(value) if callable(value) else value


class _World(_Asked):
    """The world, with local states that are noted."""

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.locals = _Locals(world.locals)
        self.bosses = _Locals(world.bosses)

    @property
    def forget(self) -> _Asked | None:
        """What is forgotten, if anything is."""
        return None if self._real.forget is None else _Asked(self._real.forget)


class _Future(Future):
    """What engines may still say, asked for each local state once."""

    def __init__(self, plain: Future) -> None:
        self.__dict__.update(plain.__dict__)
        self._plain = plain

    def _reach(self, local: Any, votes: int) -> tuple[int, int]:
        if not isinstance(local, View):
            return self._plain._reach(local, votes)
        reach = self._plain._reach
        return local.beside(("of", reach, votes), reach(local.peek(), votes))  # type: ignore[no-any-return]


def _noted(method: Any) -> Any:
    def call(*given: Any) -> Any:
        if given and isinstance(given[0], Ref):
            how = tuple(map(real, given[1:]))
            number = given[0].peek()
            return given[0].view(("call", method, *how), method(number, *how)).all()
        if given and isinstance(given[0], View):
            how = tuple(map(real, given[1:]))
            return given[0].aside(("of", method, *how), method(given[0].peek(), *how))
        return method(*given)

    return call
