"""Conditions of the exported text: Promela expressions over the state of one engine, or of all."""

from __future__ import annotations

from elasticfsm.export.layout import KINDS, Layout
from elasticfsm.protocol import Machine, State, Step

JOINED = "active joined"  # whoever has it may be inside a forward step of its own generation at any moment


def either(parts: list[str]) -> str:
    """The disjunction of conditions; 0 without any."""
    return " || ".join(f"({part})" for part in parts) or "0"


def both(parts: list[str]) -> str:
    """The conjunction of conditions; 1 without any."""
    return " && ".join(f"({part})" if "||" in part else part for part in parts if part != "1") or "1"


class Conditions:
    """Writes conditions about `me` (or another engine) of a role."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout

    def at(self, slot: int, name: str, state: State, who: str = "me") -> str:
        """Whether a machine stands in a state."""
        return f"AT({who}, {slot}) == {self.layout.constant(name, state.name)}"

    def ended(self, slot: int, state: State, who: str = "me") -> str:
        """Whether the list of steps of the state in which a machine stands has ended."""
        return f"STEP({who}, {slot}) == {len(state.steps)} || SAID({who}, {slot}) == 1" if state.steps else "1"

    def begun(self, slot: int, who: str = "me") -> str:
        """Whether a list of steps has begun."""
        return f"STEP({who}, {slot}) > 0 || INSIDE({who}, {slot}) > 0 || SAID({who}, {slot}) > 0"

    def unhindered(self, role: str, slot: int) -> str:
        """Whether serving may begin a forward step: nobody else stands in a foreground state or one that serves not."""
        holds = [
            self.at(other, name, state)
            for other, name, machine in self.layout.lives(role)
            if other != slot
            for state in machine.states.values()
            if not state.end and (state.thread == "foreground" or not state.serves)
        ]
        return f"!({either(holds)})"

    def wants(self, role: str, who: str) -> str:
        """The votes that an engine contributes."""
        parts = []
        for slot, name, machine in self.layout.lives(role):
            for state in machine.states.values():
                if asked := set(state.asked()):
                    mask = sum(self.layout.votes[vote] for vote in asked)
                    parts.append(f"({self.at(slot, name, state, who)} -> {mask} : 0)")
        return " | ".join(parts) or "0"

    def rests(self, role: str, who: int) -> str:
        """Whether an engine may stay as it is for ever: nothing runs, every phase says `within: forever`."""
        parts = []
        for slot, name, machine in self.layout.lives(role):
            own = self.layout.operation and slot == 0
            quiet = [f"AT({who}, {slot}) == 0"]
            for state in machine.states.values():
                here = self.at(slot, name, state, str(who))
                if state.end or (not own and state.within == "forever"):
                    ended = self.ended(slot, state, str(who))
                    quiet.append(here if ended == "1" else f"{here} && ({ended})")
            parts.append(f"({either(quiet)})")
        return both(parts)

    def inside(self, who: int, generation: int, name: str = "", released: bool = True) -> str:
        """Whether an engine is inside a step (of that name) on a generation, or has one pending there.

        With `released` also inside one that it could leave.
        """
        entered = "> 0" if released else "== 1"
        layout, role = self.layout, self.layout.engines[who]
        parts = []
        for slot, state, index, step in layout.steps(role):
            group = layout.resolve(role, step, str(who))
            if group is None or (name and step.name != name):
                continue
            valid, where = group
            here = [
                f"AT({who}, {slot}) == {state}",
                f"STEP({who}, {slot}) == {index}",
                f"INSIDE({who}, {slot}) {entered}",
            ]
            if where.isdigit() and int(where) != generation:
                continue
            here += [valid] if where.isdigit() else [f"{where} == {generation}"]
            parts.append(both([*here, f"SAID({who}, {slot}) != 1"]))
        operations = [layout.collectives[name]] if name else None
        for slot in range(4):
            entry = f"PENDING({who}, {slot})"
            on = f"{entry} > 0 && GENERATION(PLACE({entry})) == {generation}"
            if operations is None:
                parts.append(on)
            elif operations:
                parts.append(f"{on} && OP({entry}) == {operations[0]}")
        return either(parts)

    def needed(self, role: str, bit: int) -> str:
        """Whether a fact must hold on an engine now: a machine lives by it, or is inside a step that requires it."""
        layout = self.layout
        parts = []
        for slot, name, machine in layout.lives(role):
            if layout.mask(machine.holds) & bit:
                ends = [f"AT(me, {slot}) != {layout.constant(name, s.name)}" for s in machine.states.values() if s.end]
                parts.append(both([f"AT(me, {slot}) > 0", *(ends if self._stays(slot) else [])]))
        for slot, state, index, step in layout.steps(role):
            if layout.mask(step.facts("requires")) & bit and step.meaning.kind:
                parts.append(f"AT(me, {slot}) == {state} && STEP(me, {slot}) == {index} && INSIDE(me, {slot}) == 1")
        return either(parts)

    def hold(self, facts: tuple[str, ...]) -> str:
        """Whether facts of other engines hold."""
        return both([f"!MISS({who}, {bit})" for where, bit in self.layout.elsewhere(facts) for who in where])

    def _stays(self, slot: int) -> bool:
        """Whether a machine stays in its end state; the others are absent again."""
        return self.layout.operation and slot == 0


def place_of(step: Step, generation: str) -> str:
    """The number of the group that a step works on."""
    kind = KINDS.index(step.meaning.kind or "world")
    return f"{1 + kind} + 4 * {generation}" if not generation.isdigit() else str(1 + kind + 4 * int(generation))


def is_worker(machine: Machine) -> bool:
    """Whether a machine runs in a thread of its own, independent of the main loop."""
    return bool(machine.inside) and {state.thread for state in machine.states.values()} - {""} == {"background"}
