"""Letters on their way between the actors of a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from elasticfsm.mailbox import Letter
from elasticfsm.testing.stage.act import COORDINATOR

if TYPE_CHECKING:
    from elasticfsm.testing.stage.stage import Stage


class Sent(NamedTuple):
    """A letter on its way to one actor."""

    to: str
    letter: Letter


class Network:
    """Carries letters when it is told to. `merge`: one that is on its way or unread already is not sent again."""

    def __init__(self, stage: Stage, merge: bool) -> None:
        self.letters: list[Sent] = []
        self.taken: list[Sent] = []  # what has arrived, oldest first
        self.heard: Callable[[str, Sent], None] = lambda what, sent: None
        self.holds: dict[str, Callable[[Sent], bool]] = {}
        self._stage = stage
        self._merge = merge

    def post(self, source: str, letter: Letter) -> None:
        """A letter leaves its sender for everybody whom it concerns."""
        for to in self._targets(source, letter):
            if not self._stage.actor(to).alive and to != COORDINATOR:
                continue
            if source == COORDINATOR and self._stage.repeats and self._stage.engines[to].ended():
                for word in self._stage.engines[to].last_words():
                    self.post(to, word)
                continue
            sent = Sent(to, letter)
            if not (self._merge and self._there(sent)):
                self.letters.append(sent)
                self.heard("sent", sent)

    def matching(self, to: str, machine: str, message: str, sender: str = "") -> list[Sent]:
        """Letters on their way to a machine, oldest first."""
        return [
            sent
            for sent in self.letters
            if sent.to == to
            and (sent.letter.receiver, sent.letter.message) == (machine, message)
            and sender in ("", sent.letter.engine)
        ]

    def flows(self, sent: Sent) -> bool:
        """Whether a letter arrives by itself; a script may hold messages back."""
        return self._stage.actor(sent.to).alive and not any(held(sent) for held in self.holds.values())

    def deliver(self, sent: Sent, keep: bool = False) -> None:
        """One letter arrives; with `keep` a copy of it stays on its way."""
        if not keep:
            self.letters.remove(sent)
        self.taken.append(sent)
        self._stage.actor(sent.to).deliver(sent.letter)
        self.heard("arrived", sent)

    def _targets(self, source: str, letter: Letter) -> Iterator[str]:
        stage = self._stage
        if letter.receiver == stage.program.coordinator:
            yield COORDINATOR
            return
        wave = letter.message in stage.program.waves
        peers = stage.laws.members.get(stage.laws.names.get(source, {}).get("active", ""), ())
        for name, engine in stage.engines.items():
            if name != source and letter.receiver in stage.program.roles[engine.role] and (not wave or name in peers):
                yield name

    def _there(self, sent: Sent) -> bool:
        def same(letter: Letter) -> bool:
            mine = sent.letter
            return (letter.message, letter.sender, letter.engine, letter.receiver) == (
                mine.message,
                mine.sender,
                mine.engine,
                mine.receiver,
            ) and letter.age == mine.age

        waiting = [other.letter for other in self.letters if other.to == sent.to]
        return any(same(letter) for letter in [*waiting, *self._stage.actor(sent.to).inbox()])
