"""The coordinator as a Promela process: it runs its steps one after the other and looks at what engines have sent."""

from __future__ import annotations

from collections.abc import Iterator

from elasticfsm.export.conditions import both, either
from elasticfsm.export.engine import Move, d_step
from elasticfsm.export.layout import Layout
from elasticfsm.protocol import Leave, Machine, State


class Coordinator:
    """Writes the process of the coordinator."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.name = layout.program.coordinator
        self.machine: Machine = layout.program.machines[self.name]

    def process(self) -> str:
        """Its proctype; it is process 0."""
        lines = ["active proctype coordinator() {", "    do"]
        for state in self.machine.states.values():
            here = f"boss_at == {self.layout.constant('coordinator', state.name)}"
            lines += [d_step(both([here, guard]), body) for guard, body in self._state(state)]
        return "\n".join(lines)

    def _state(self, state: State) -> Iterator[Move]:
        for index, step in enumerate(state.steps):
            for answer in step.meaning.answers or [""]:
                body = [f"boss_step = {index + 1}"]
                body += [f"boss_said = {1 + self.layout.answers[answer]}"] if answer else []
                if step.meaning.means == "launch":
                    body += [f"present[{who}] = 1" for who in self.layout.where[step.argument]]
                yield f"boss_step == {index}", body
        ended = f"boss_step == {len(state.steps)}"
        for way in state.leave:
            for guard, taken in self._ways(state, way):
                yield both([ended, guard]), [*taken, *self._enter(self.machine.states[way.target])]

    def _ways(self, state: State, way: Leave) -> Iterator[Move]:
        kind, answers = way.guard.kind, self.layout.answers
        senders = self.layout.program.senders(self.name, way.guard.name)
        if kind == "answer":
            yield f"boss_said == {1 + answers[way.guard.name]}", []
        elif kind == "done":
            listed = [f"boss_said != {1 + answers[w.guard.name]}" for w in state.leave if w.guard.kind == "answer"]
            yield both(listed), []
        elif "operator" in senders:
            yield "CANCEL && ENVIRONMENT && !cancelled", ["cancelled = 1"]
        elif kind in ("received", "any", "all", "all alive"):
            yield from self._replies(kind, way.guard.name, senders)

    def _replies(self, kind: str, message: str, senders: tuple[str, ...]) -> Iterator[Move]:
        sources = [
            (who, self.layout.outbox[message, sender])
            for sender in senders
            for role, inside in self.layout.program.roles.items()
            if sender in inside and (message, sender) in self.layout.outbox
            for who in self.layout.where[role]
        ]
        arrived = [f"outbox[{who}] & {bit}" for who, bit in sources]
        if not sources:
            return
        if kind == "received":
            for who, bit in sources:
                yield f"outbox[{who}] & {bit}", [f"outbox[{who}] = outbox[{who}] & ~{bit}"]
        elif kind == "any":
            yield either(arrived), []
        else:
            alive = [f"!present[{who}] || " if kind == "all alive" else "" for who, _ in sources]
            yield both([f"{dead}({here})" for dead, here in zip(alive, arrived, strict=True)]), []

    def _enter(self, target: State) -> list[str]:
        body = [f"boss_at = {self.layout.constant('coordinator', target.name)}", "boss_step = 0", "boss_said = 0"]
        for message in target.sends:
            for route in self.layout.program.routes_from(self.name, message):
                bit = self.layout.inbox[message, self.name, route.receiver]
                role = next(role for role, inside in self.layout.program.roles.items() if route.receiver in inside)
                body += [f"inbox[{who}] = inbox[{who}] | {bit}" for who in self.layout.where[role]]
        if target.end:
            body.append("refute(agreement, SOMEBODY_DONE && SOMEBODY_ABORTED)")
            body += [] if target.name in ("done", "aborted") else ["refute(good_end, true)"]
        return body
