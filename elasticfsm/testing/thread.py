"""A thread of the world: it works on one list, one enter or leave at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING

from elasticfsm.protocol import Step
from elasticfsm.seat import Job, Result
from elasticfsm.testing.ground import Meeting

if TYPE_CHECKING:
    from elasticfsm.testing.player import Player

Ready = Callable[[], bool]


def always() -> bool:
    """A thread that only waits for its turn."""
    return True


class Thread:
    """One list of one engine. `ready` tells if its wait is over, `meeting` and `group` in which collective it is."""

    def __init__(self, player: Player, job: Job) -> None:
        self.job = job
        self.ready: Ready = always
        self.meeting: Meeting | None = None
        self.group = ""
        self.result = Result("done")
        self._player = player
        self._ground = player.world.ground
        self._work = self._list()

    def go(self) -> bool:
        """Goes on to the next point at which it may have to wait; False when the list has ended."""
        try:
            self.ready = next(self._work)
        except StopIteration:
            return False
        return True

    def free(self) -> bool:
        """Whether it can go on: what it waits for is there, or its list was withdrawn."""
        return self.job.cancel.is_set() or self.ready()

    def stuck(self) -> bool:
        """Whether it waits in a collective that will never be released."""
        return self.meeting is not None and not self.ready() and self._ground.broken(self.meeting)

    def _list(self) -> Generator[Ready]:
        ground, engine = self._ground, self._player.engine
        answer, agreed = "", frozenset[str]()
        for step in self.job.steps:
            means = step.meaning.means
            ground.demand(engine, step)
            if means != "await":  # what that takes away, others may still need while it waits
                ground.end(engine, step)
            if means == "agree":
                answer, agreed = yield from self._agree(step)
            elif means == "rendezvous":
                answer = (yield from self._rendezvous(step)) or answer
            else:
                yield from self._other(step)
                answer = self._player.choose(step.meaning.answers) if step.meaning.answers else answer
            self.meeting, self.group = None, ""
            if means not in ("rename", "local"):  # what it required has to hold to its end
                ground.demand(engine, step, begun=True)
            if means == "await":
                ground.end(engine, step)
            ground.provide(engine, step)
            yield always
        self.result = Result("done", answer, agreed)

    def _agree(self, step: Step) -> Generator[Ready, None, tuple[str, frozenset[str]]]:
        player = self._player
        votes, served = player.votes(), min(player.requests, 1)
        meeting = yield from self._meet(step, (votes, bool(votes) or player.requests > 0))
        player.requests -= served
        values = [value for value in meeting.entered.values() if isinstance(value, tuple)]
        answer = "work" if any(work for _, work in values) else "empty"
        return answer, frozenset.intersection(*(cast for cast, _ in values))

    def _rendezvous(self, step: Step) -> Generator[Ready, None, str]:
        asks, answers = step.meaning.asks, step.meaning.answers
        meeting = yield from self._meet(step, self._ground.holds(self._player.engine, asks) if asks else None)
        if asks:
            return "all" if all(meeting.entered.values()) else "not_all"
        if answers and not meeting.answer:
            meeting.answer = self._player.choose(answers)
        return meeting.answer

    def _other(self, step: Step) -> Generator[Ready]:
        player, ground, means = self._player, self._ground, step.meaning.means
        if means == "post":
            player.posted[step.argument] = ground.enter(player.engine, step)
        elif means == "wait":
            yield from self._wait(player.posted[step.argument], step.argument)
        elif means == "await":
            yield lambda: not ground.missing(player.engine, step, "awaits")
        elif means == "rename":
            ground.rename(player.engine)
            player.switched()
        elif step.name == "groups.destroy":
            ground.close(player.engine, step.argument)

    def _meet(self, step: Step, value: object) -> Generator[Ready, None, Meeting]:
        meeting = self._ground.enter(self._player.engine, step, value)
        yield from self._wait(meeting, step.argument)
        return meeting

    def _wait(self, meeting: Meeting, group: str) -> Generator[Ready]:
        self.meeting, self.group = meeting, group
        yield lambda: meeting.released
