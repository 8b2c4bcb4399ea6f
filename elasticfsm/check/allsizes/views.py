"""All views that a system of any size can show: a set that grows until no step of a view adds another one."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from elasticfsm.check.allsizes.places import Place, Places
from elasticfsm.check.forget import Forget
from elasticfsm.check.reduce import Alone
from elasticfsm.check.successors import Successors
from elasticfsm.check.world import Regime, World
from elasticfsm.compile import Program

View = tuple[int, int, int]  # the coordinator's state, and two places, the smaller number first


@dataclass(frozen=True, slots=True)
class Company:
    """A view and who may stand beside it: one more engine, in a place that goes with both."""

    view: View
    pair: tuple[Place, Place]
    thirds: tuple[Place, ...]
    missing: tuple[str, ...]  # roles of which neither is; every role has at least one engine

    def every(self, holds: Callable[[Place], bool]) -> bool:
        """Whether something may hold for every engine: for both, and for one of each role that is not among them."""
        first, second = self.pair
        if not (holds(first) and (second is first or holds(second))):
            return False
        return all(any(third.role == role and holds(third) for third in self.thirds) for role in self.missing)

    def some(self, holds: Callable[[Place], bool]) -> bool:
        """Whether something may hold for some engine."""
        return any(map(holds, self.pair)) or any(map(holds, self.thirds))

    def quiet(self) -> Company:
        """The same without those that have something to do alone: all others wait for them."""
        return replace(self, thirds=tuple([third for third in self.thirds if third.prompt is None]))

    def whole(self) -> bool:
        """Whether there may be an engine of every role."""
        return self.every(lambda place: True)


@dataclass
class Finding:
    """A property that a step of a view refutes: the view, and what was done."""

    property: str
    view: View
    text: str


@dataclass
class Found:
    """Views, each with the one from which it came first and what was done there; and what is wrong."""

    parents: dict[View, tuple[View | None, str]] = field(default_factory=dict)
    findings: dict[str, Finding] = field(default_factory=dict)
    complete: bool = True


class Views:
    """The views of one program. `reduced`: with the reductions of the explorer that look at one engine only.

    `prompt`: and a collective that may be entered alone is entered before anything else happens.
    """

    def __init__(
        self, program: Program, regime: Regime, reduced: bool = True, prompt: bool = True, bold: bool = True
    ) -> None:
        world = World(program, dict.fromkeys(program.roles, 1), regime)
        world.forget = Forget(world) if reduced else None
        world.bold = reduced and bold
        self.world = world
        self.successors = Successors(world, Alone(world) if reduced else None)
        self.places = Places(world, self.successors, prompt and reduced)
        self.prompt = prompt and reduced
        self.found = Found()
        self.beside: dict[int, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
        self.sent: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))  # by anybody of a role, so far
        self._fresh: deque[View] = deque()
        self._again: dict[View, None] = {}

    def initial(self) -> None:
        """Adds the views of the first moment: engines of one role are alike."""
        boss, *engines, _ = self.world.initial()
        places = [self.places.number(engine, 0) for engine in engines]
        for one in places:
            for other in places:
                self.add(boss, one, other, None, "")

    def add(self, boss: int, one: int, other: int, parent: View | None, text: str) -> None:
        """Adds a view; those that have one more engine beside them now are looked at again."""
        view = (boss, one, other) if one <= other else (boss, other, one)
        if view in self.found.parents:
            return
        self.found.parents[view] = (parent, text)
        beside = self.beside[boss]
        for engine in (self.places[one], self.places[other]):
            self.sent[boss][engine.role] |= engine.known.outbox
        beside[one].add(other)
        beside[other].add(one)
        self._fresh.append(view)
        for third in beside[one] & beside[other]:
            for place in (one, other):
                again = (boss, place, third) if place <= third else (boss, third, place)
                self._again[again] = None

    def next(self) -> View | None:
        """The next view to look at; None if nothing is left."""
        if self._fresh:
            view = self._fresh.popleft()
            self._again.pop(view, None)
            return view
        if self._again:
            view = next(iter(self._again))
            del self._again[view]
            return view
        return None

    def company(self, view: View) -> Company:
        """A view and who may stand beside it."""
        boss, one, other = view
        beside, met = self.beside[boss], self.places.met
        thirds = tuple([met[number] for number in beside[one] & beside[other]])
        pair = (met[one], met[other])
        missing = [role for role in self.world.tables.roles if role not in (pair[0].role, pair[1].role)]
        return Company(view, pair, thirds, tuple(missing))

    def flag(self, names: tuple[str, ...] | set[str], view: View, text: str) -> None:
        """Notes that a step of a view refutes properties; the first one of each is kept."""
        for name in names:
            self.found.findings.setdefault(name, Finding(name, view, text))

    def way(self, view: View) -> list[tuple[View, str]]:
        """The views that lead to this one, first to last, each with what was done to come there."""
        told: list[tuple[View, str]] = []
        here: View | None = view
        while here is not None:
            parent, text = self.found.parents[here]
            told.append((here, text))
            here = parent
        return told[::-1]
