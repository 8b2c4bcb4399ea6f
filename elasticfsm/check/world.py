"""What a global state is: a tuple of numbers, one for the coordinator, one for each engine, one for peer messages.

The number of an engine stands for its whole local state (`Local`): machines, facts, names of groups, collectives that
it entered and that were not released yet, messages in flight to it and from it. Local states are interned, and all
that follows from a local state alone is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from elasticfsm.check.tables import NEW, OLD, MachineTable, StateTable, StepTable, Tables
from elasticfsm.compile import Program
from elasticfsm.errors import SpecError

if TYPE_CHECKING:
    from elasticfsm.check.forget import Forget

OUT, ENTERED, RELEASED = 0, 1, 2  # `inside` of a stand; a released one is RELEASED + number of the result
NOTHING, FAILED, ANSWERED = 0, 1, 2  # `outcome` of a stand; an answer is ANSWERED + its number
ABSENT, DONE, ABORTED, OTHER_END, RUNNING = 1, 2, 4, 8, 16  # how an operation's machine stands, as bits
CRASH, LOSS, DUPLICATE, FAILURE = 0, 1, 2, 3  # what a budget is spent on


class Stand(NamedTuple):
    """Where a machine stands: its state, the next step of the list, whether it is inside that step, and the outcome."""

    state: int
    step: int = 0
    inside: int = OUT
    outcome: int = NOTHING


class Pending(NamedTuple):
    """A collective that an engine entered and that was not released yet; `machine` is -1 for a posted one."""

    generation: int
    kind: int
    step: str
    machine: int


class Local(NamedTuple):
    """The local state of one engine; a machine that did not start or has ended is None.

    `older`: of the coordinator's messages in the inbox those that may have come before one from inside the engine
    (kept where something may go wrong; see `moves.in_time`).
    """

    role: int
    present: bool
    stands: tuple[Stand | None, ...]
    facts: int
    switched: bool
    closed: int
    pending: tuple[Pending, ...]
    inbox: int
    outbox: int
    dead: bool = False
    older: int = 0


class Boss(NamedTuple):
    """The local state of the coordinator, and what happened in the environment.

    `spent`: how many crashes, losses, duplicates and failures there were; `mourned`: whether an engine died without
    which the deployment cannot serve; `journal`: decisions that were written, as bits DONE and ABORTED.
    """

    stand: Stand | None
    cancelled: bool = False
    asked_again: bool = False
    down: bool = False
    mourned: bool = False
    journal: int = 0
    spent: tuple[int, int, int, int] = (0, 0, 0, 0)
    facts: int = 0


class Result(NamedTuple):
    """What a released collective says to all members: an answer and the votes that are full."""

    answer: str
    votes: int


State = tuple[int, ...]


class Regime(NamedTuple):
    """What the environment may do.

    `cancel` by the operator at any moment; at most so many `crashes` of engines and coordinator, `losses` and
    `duplicates` of messages, `failures` of steps that touch nobody else. `expiry` of deadlines: `off`; `perfect`, only
    when no end can be reached without; `eventual` and `arbitrary`, at any boundary (they reach the same states and
    differ in fairness only). `restart`: a dead coordinator comes back with its journal. `again`: the operator asks a
    second time. `strict`: the death of a new engine must not cost the service before the coordinator has committed.
    """

    cancel: bool = False
    crashes: int = 0
    losses: int = 0
    duplicates: int = 0
    failures: int = 0
    expiry: str = "off"
    restart: bool = False
    again: bool = False
    strict: bool = False
    device: str = "concurrent"

    @property
    def budgets(self) -> tuple[int, int, int, int]:
        """How many crashes, losses, duplicates and failures there may be."""
        return (self.crashes, self.losses, self.duplicates, self.failures)

    @property
    def hasty(self) -> bool:
        """Whether a deadline may expire although nothing is lost."""
        return self.expiry in ("eventual", "arbitrary")

    @property
    def faults(self) -> bool:
        """Whether anything may go wrong; then the reductions that count on nothing going wrong are off."""
        return any(self.budgets) or self.expiry != "off" or self.again

    def __str__(self) -> str:
        counted = zip(self.budgets, ("crash", "loss", "duplicate", "failure"), strict=True)
        told = ["cancel at any moment"] if self.cancel else []
        told += [f"{count} {_plural(name, count)}" for count, name in counted if count]
        told += [f"{self.expiry} deadlines"] if self.expiry != "off" else []
        told += ["coordinator restarts"] if self.restart else []
        told += ["asked twice"] if self.again else []
        told += ["strict"] if self.strict else []
        told += ["one device queue"] if self.device == "in_order" else []
        return ", ".join(told) or "fault-free"


def _plural(name: str, count: int) -> str:
    return name if count == 1 else f"{name}es" if name.endswith(("sh", "ss")) else f"{name}s"


CALM = Regime()
EXPIRIES = ("off", "perfect", "eventual", "arbitrary")


def faulty(
    crashes: int, losses: int, duplicates: int, failures: int, expiry: str, restart: bool, strict: bool
) -> Regime | None:
    """The regime that was asked for, None if nothing may go wrong; deadlines are arbitrary unless named."""
    if expiry and expiry not in EXPIRIES:
        raise SpecError(f"deadlines `{expiry}`: expected one of {', '.join(EXPIRIES)}")
    if not (crashes or losses or duplicates or failures or expiry or restart):
        return None
    return Regime(
        crashes=crashes,
        losses=losses,
        duplicates=duplicates,
        failures=failures,
        expiry=expiry or "arbitrary",
        restart=restart,
        strict=strict,
    )


class World:
    """One program at one size: which engines there are, who is a member of what, and the interned local states."""

    def __init__(self, program: Program, sizes: dict[str, int], regime: Regime = CALM) -> None:
        self.program = program
        self.tables = Tables(program)
        self.regime = regime
        self.sizes = sizes
        self.roles = [role for role in self.tables.roles for _ in range(sizes[role])]
        self.names = [f"{role}{number}" for role in self.tables.roles for number in range(sizes[role])]
        self.count = len(self.roles)
        self.members = [
            [index for index, role in enumerate(self.roles) if role in self.tables.members(generation)]
            for generation in (OLD, NEW)
        ]
        self.where = {
            role: [index for index, own in enumerate(self.roles) if own == role] for role in self.tables.roles
        }
        self.machines: list[tuple[MachineTable, ...]] = [self.tables.machines[role] for role in self.tables.roles]
        self.operation = bool(self.tables.coordinator)
        self.locals: list[Local] = []
        self.bosses: list[Boss] = []
        self.results: list[Result] = []
        self.answers: list[str] = []
        self._local_ids: dict[Local, int] = {}
        self._boss_ids: dict[Boss, int] = {}
        self._boss_ends: dict[int, int] = {}
        self.repeats = [self._repeats(machines[0].name) for machines in self.machines]
        self.suspends = self._suspends()
        inbox = self.tables.mail.inbox.items()
        self.orders = sum(bit for (_, sender, _), bit in inbox if sender == program.coordinator != "")
        self.within = [  # messages from inside the engine to the machine of the operation
            sum(bit for (_, _, to), bit in inbox if to == machines[0].name) & self.tables.inner
            for machines in self.machines
        ]
        self.queued = self.tables.device if regime.device == "in_order" else frozenset()
        self.bold = False  # whether the reduction may assume that nothing is withdrawn without a cancel (see `reduce`)
        self.forget: Forget | None = None
        self.given_up: set[State] = set()  # perfect deadlines: the states in which one may expire (see `patience`)
        self.form: Callable[[State], State] = lambda state: state
        self.launches = any(
            step.means == "launch" for state in _states(self.tables.coordinator) for step in state.steps
        )

    def _suspends(self) -> int:
        """The facts that must be gone before the operation is over.

        Those of the vocabulary are judged only where nothing is cancelled and nothing fails: here messages inside an
        engine overtake each other, which the runtime excludes: a `drain` may come after the `spread` that ends it.
        """
        facts = self.tables.facts
        always = sum(facts.bits[name] for name, refuted in facts.properties.items() if refuted == "terminates")
        calm = self.regime._replace(device="concurrent") == CALM
        return always | (facts.known(self.program.suspends) if calm else 0)

    def _repeats(self, machine: str) -> int:
        """Messages of the coordinator to which a machine that has ended says its last word again."""
        if not self.operation or not self.regime.losses:  # a restarted coordinator is told how engines ended
            return 0
        boss, mail = self.program.coordinator, self.tables.mail.inbox
        return sum(bit for (_, sender, receiver), bit in mail.items() if (sender, receiver) == (boss, machine))

    def local(self, local: Local) -> int:
        """The number of a local state."""
        if self.forget is not None:
            local = self.forget.local(local)
        if local.older:
            local = local._replace(older=local.older & local.inbox if local.inbox & self.within[local.role] else 0)
        number = self._local_ids.get(local)
        if number is None:
            number = self._local_ids[local] = len(self.locals)
            self.locals.append(local)
        return number

    def boss(self, boss: Boss) -> int:
        """The number of a state of the coordinator."""
        if self.forget is not None:
            boss = self.forget.boss(boss)
        number = self._boss_ids.get(boss)
        if number is None:
            number = self._boss_ids[boss] = len(self.bosses)
            self.bosses.append(boss)
        return number

    def result(self, result: Result) -> int:
        """The `inside` of a stand that was released with this result."""
        if result not in self.results:
            self.results.append(result)
        return RELEASED + self.results.index(result)

    def outcome(self, answer: str) -> int:
        """The `outcome` of a stand whose last answering step said this."""
        if answer not in self.answers:
            self.answers.append(answer)
        return ANSWERED + self.answers.index(answer)

    def initial(self) -> State:
        """The state in which the operator has just asked, or in which everybody serves."""
        boss = self.tables.coordinator
        orders = dict(boss.states[boss.starts[0][2]].orders) if boss else {}
        engines = tuple(
            self.local(self._fresh(self.tables.roles.index(role), role, orders.get(role, 0))) for role in self.roles
        )
        first = Boss(Stand(boss.starts[0][2]) if boss else None)
        return (self.boss(first), *engines, 0)

    def end_of_boss(self, number: int) -> int:
        """How the coordinator stands, as a bit; RUNNING for ever if there is none."""
        found = self._boss_ends.get(number)
        if found is None:
            boss, table = self.bosses[number], self.tables.coordinator
            state = table.states[boss.stand.state] if table and boss.stand else None
            found = {"done": DONE, "aborted": ABORTED}.get(state.name, OTHER_END) if state and state.end else RUNNING
            self._boss_ends[number] = found
        return found

    def boss_interrupts(self, number: int) -> bool:
        """Whether the coordinator stands in a state that sends what cancels a running list."""
        stand, table = self.bosses[number].stand, self.tables.coordinator
        orders = table.states[stand.state].orders if table and stand else ()
        return any(bits & self.tables.interrupts for _, bits in orders)

    def _fresh(self, number: int, role: str, inbox: int) -> Local:
        started = self.program.started[role]
        machines = self.machines[number]
        holds = 0
        for machine in machines:
            holds |= machine.holds if machine.name in started else 0
        return Local(
            role=number,
            present=not self.launches or role in self.tables.members(OLD),
            stands=tuple(Stand(machine.first) if machine.name in started else None for machine in machines),
            facts=holds,
            switched=False,
            closed=0,
            pending=(),
            inbox=inbox,
            outbox=0,
        )

    def ends_of(self, role: int, machine: int, state: int) -> frozenset[str]:
        """The ends `done` and `aborted` that a machine of a role can still reach from a state."""
        return ends_from(self.machines[role][machine], state)

    def state_of(self, local: Local, machine: int) -> StateTable | None:
        """The state in which a machine of an engine stands."""
        stand = local.stands[machine]
        return None if stand is None else self.machines[local.role][machine].states[stand.state]

    def step_of(self, local: Local, machine: int) -> StepTable | None:
        """The step that a machine is in or begins next; None after the last one."""
        stand, state = local.stands[machine], self.state_of(local, machine)
        if stand is None or state is None or stand.step >= len(state.steps) or stand.outcome == FAILED:
            return None
        return state.steps[stand.step]


@cache
def _ends_from(states: tuple[StateTable, ...], state: int) -> frozenset[str]:
    seen, queue = {state}, [state]
    while queue:
        for way in states[queue.pop()].leave:
            if way.target not in seen:
                seen.add(way.target)
                queue.append(way.target)
    return frozenset(states[index].name for index in seen if states[index].end) & {"done", "aborted"}


def ends_from(machine: MachineTable, state: int) -> frozenset[str]:
    """The ends `done` and `aborted` that a machine can still reach from a state."""
    return _ends_from(machine.states, state)


def ended(state: StateTable, stand: Stand) -> bool:
    """Whether the list of steps of a state has ended; true for a state without steps."""
    return stand.step >= len(state.steps) or stand.outcome == FAILED


def begun(stand: Stand) -> bool:
    """Whether a list has begun."""
    return stand.step > 0 or stand.inside != OUT or stand.outcome != NOTHING


MOST_ENGINES = 64  # many more than could ever be explored


def sizes_of(program: Program, text: str) -> dict[str, int]:
    """Reads `2+1` or `3`: one number for each role of an engine, in the order of the protocol."""
    roles = list(program.roles)
    numbers = text.split("+")
    if len(numbers) != len(roles) or not all(number.isdecimal() and int(number) > 0 for number in numbers):
        expected = "+".join("1" for _ in roles)
        raise SpecError(
            f"size `{text}` does not fit {program.name}: expected a positive number for each of {', '.join(roles)}, "
            f"as in {expected}"
        )
    if sum(map(int, numbers)) > MOST_ENGINES:
        raise SpecError(f"size `{text}`: {MOST_ENGINES} engines at most; states grow with a power of their number")
    return dict(zip(roles, map(int, numbers), strict=True))


def _states(machine: MachineTable | None) -> tuple[StateTable, ...]:
    return machine.states if machine else ()
