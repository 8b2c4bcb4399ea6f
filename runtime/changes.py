"""From one size to another: what a size must satisfy, who joins and who leaves, and in which roles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from elasticfsm.compile import Program

from .experts.placement import refuse_size
from .operation import Record


@dataclass(frozen=True)
class Sizes:
    """What a size must satisfy."""

    experts: int
    slots: int
    largest: int

    def check(self, size: int) -> None:
        """Raise RequestRefused, naming the valid sizes, unless `size` engines can serve the model."""
        refuse_size(size, self.experts, self.slots, self.largest)


@dataclass(frozen=True)
class Change:
    """From one generation to the next: engine ids in rank order, the protocol, and everybody's role."""

    protocol: str
    previous: tuple[str, ...]
    members: tuple[str, ...]

    @property
    def new(self) -> tuple[str, ...]:
        """Engines that join."""
        return tuple(engine for engine in self.members if engine not in self.previous)

    @property
    def removing(self) -> tuple[str, ...]:
        """Engines that leave."""
        return tuple(engine for engine in self.previous if engine not in self.members)

    @property
    def roles(self) -> dict[str, str]:
        """Engine id -> role of the protocol."""
        stays = "existing" if self.protocol == "scale_up" else "remaining"
        goes = dict.fromkeys(self.removing, "removing") | dict.fromkeys(self.new, "new")
        return {engine: goes.get(engine, stays) for engine in (*self.previous, *self.new)}


def change(members: tuple[str, ...], size: int, new_ids: Callable[[int], list[str]], remove: tuple[str, ...]) -> Change:
    """The change to `size` engines: survivors keep their order, new ones are appended, the highest leave by default."""
    if size > len(members):
        return Change("scale_up", members, (*members, *new_ids(size - len(members))))
    gone = remove or members[size:]
    return Change("scale_down", members, tuple(engine for engine in members if engine not in gone))


def change_of(record: Record) -> Change:
    """The change that a recorded operation makes."""
    stay = tuple(engine for engine in record.members if engine not in record.engines_to_remove)
    protocol = "scale_up" if record.engines_to_add else "scale_down"
    return Change(protocol, record.members, (*stay, *record.engines_to_add))


def state_after_restart(program: Program, detail: str) -> str:
    """Where the coordinator's machine stands again, given the state that its record names last.

    Where the spec starts it on `restarted`; else what was decided is carried on, and before that the engines hold the
    answer, and are asked: the first state of the phase `completing`, `aborting` or `asking`.
    """
    machine = program.machines[program.coordinator]
    states = machine.states
    if "restarted" in machine.starts:
        return machine.starts["restarted"]
    phase = states[detail].phase if detail in states else ""
    phase = phase if phase in ("completing", "aborting") else "asking"
    return next(name for name, state in states.items() if state.phase == phase)
