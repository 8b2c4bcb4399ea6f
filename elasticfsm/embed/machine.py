"""A machine of the table, driven by somebody else's main loop one `progress()` at a time.

It has the call shape of vLLM's `ElasticEPScalingState` on purpose: `progress`, `is_ready_for_switch`, `is_complete`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

from elasticfsm.embed.monitor import Monitor
from elasticfsm.embed.program import Op, Place, Program, State, Step, TableError

Outcome = Literal["committed", "aborted", "failed"]


class Pending(Protocol):
    """Something that was started; a `concurrent.futures.Future` is one."""

    def done(self) -> bool:
        """Whether it has ended."""

    def result(self) -> Any:
        """What it gave, after waiting for it; raises its error."""


class Steps(Protocol):
    """The host's hands: one method, no base class. A message goes out as a step, `send MESSAGE`."""

    def start(self, step: str, op: Op) -> Pending:
        """Starts a step ("groups.create: standby"). May block only if the step stands in a `foreground` list."""


class Machine:
    """The machine of one role in one operation; not thread-safe: all calls come from the host's main loop.

    `progress` takes at most one transition. It blocks only in a `foreground` list, that is where the spec says that no
    forward step goes on; a step of a `background` list is started once and then asked `done()`. Steps that stand at
    another place are somebody else's.
    """

    def __init__(
        self,
        program: Program,
        role: str,
        steps: Steps,
        op: Op,
        *,
        clock: Callable[[], float],
        monitor: Monitor | None = None,
        start: str = "",
        place: Place = "core",
    ) -> None:
        name = program.roles[role][0]
        self._table = program.machines[name]
        self._lists = {
            state.name: tuple(step for step in state.steps if step.at == place) for state in self._table.states.values()
        }
        self._steps = steps
        self._clock = clock
        self._monitor = monitor
        self._mail: list[str] = []
        self._index = 0
        self._pending: Pending | None = None
        self._answer = ""
        self._error: BaseException | None = None
        self.op = op
        self.state = ""
        self.since = 0.0
        self._enter(start or self._table.first)

    @property
    def error(self) -> BaseException | None:
        """Why the last list of steps failed."""
        return self._error

    def progress(self) -> bool:
        """Goes on as far as it can without waiting, by one transition at most; True if it moved or has ended."""
        at = self._at
        if at.end:
            return True
        if self._error is None and not self._run(at):
            return self._leave_by_mail(at)
        guard = self._outcome(at)
        target = dict(at.leave).get(guard)
        if target is not None:
            self._enter(target)
            return True
        if self._error is not None:
            raise self._error
        return self._leave_by_mail(at)

    def decide(self, what: str) -> None:
        """A message or a decision arrived ("commit"); the machine takes it when its state waits for it."""
        if what not in self._mail:
            self._mail.append(what)

    def is_ready_for_switch(self) -> bool:
        """Whether nothing is left to do here before the coordinator's decision to commit."""
        return "received commit" in dict(self._at.leave) and self._listed(self._at)

    def is_complete(self) -> bool:
        """Whether an end is reached."""
        return self._at.end

    def outcome(self) -> Outcome | None:
        """How it ended; None while it goes on."""
        if not self._at.end:
            return None
        return "aborted" if self.state == "aborted" else "failed" if self.state in ("failed", "broken") else "committed"

    @property
    def _at(self) -> State:
        return self._table.states[self.state]

    def _listed(self, at: State) -> bool:
        return self._index == len(self._lists[at.name])

    def _enter(self, state: str) -> None:
        if state not in self._table.states:
            known = ", ".join(self._table.states)
            raise TableError(f"{self._table.name} has no state `{state}`; it has {known}")
        self.state = state
        self.since = self._clock()
        self._index, self._pending, self._answer, self._error = 0, None, "", None
        if self._monitor is not None:
            self._monitor.enter(state)
        for message in self._at.sends:
            self._steps.start(f"send {message}", self.op).result()

    def _run(self, at: State) -> bool:
        """Runs the list as far as it goes without waiting; True when it has ended, well or badly."""
        while not self._listed(at):
            step = self._lists[at.name][self._index]
            try:
                if not self._perform(step, at.thread == "foreground"):
                    return False
            except Exception as error:  # of the host's hands: an outcome of the machine, given to its `failed`
                self._error = error
                return True
            self._index += 1
        return True

    def _perform(self, step: Step, waits: bool) -> bool:
        if self._pending is None:
            for event in step.events if self._monitor is not None else ():
                assert self._monitor is not None
                self._monitor.before(*event)
            self._pending = self._steps.start(str(step), self.op)
        if not waits and not self._pending.done():
            return False
        pending, self._pending = self._pending, None
        error: str | None = "failed"
        try:
            value = pending.result()
            error = None
        finally:
            for event in step.events if self._monitor is not None else ():
                assert self._monitor is not None
                self._monitor.after(*event, error=error)
        self._answer = value if isinstance(value, str) else self._answer
        return True

    def _outcome(self, at: State) -> str:
        if self._error is not None:
            return "failed"
        answer = f"answer {self._answer}"
        return answer if self._answer and answer in dict(at.leave) else "done"

    def _leave_by_mail(self, at: State) -> bool:
        ways = dict(at.leave)
        for message in self._mail:
            target = ways.get(f"received {message}")
            if target is not None:
                self._mail.remove(message)
                if self._monitor is not None:
                    self._monitor.told(f"received {message}")
                self._enter(target)
                return True
        return False
