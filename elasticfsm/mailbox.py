"""Messages between machines, and the mailbox of one machine: a set in order of arrival."""

from __future__ import annotations

from collections.abc import Callable, Collection

import msgspec


class Letter(msgspec.Struct, frozen=True):
    """One message from one machine to all machines of one name; whoever carries it knows in which engines those live.

    `sender` and `receiver` are qualified machines (`scale_up.new`), or `operator` and `environment` as senders.
    `engine` is the sender's engine id. `wave` counts only in messages that a wave makes void.
    """

    message: str
    sender: str
    engine: str
    receiver: str
    operation: str = ""
    generation: int = 0
    wave: int = 0

    @property
    def age(self) -> tuple[int, int]:
        """What a wave compares: generation first, then the wave in it."""
        return (self.generation, self.wave)


Population = Callable[
    [str, bool], Collection[tuple[str, str]]
]  # (message, alive) -> (machine, engine) that must send it


def nobody(message: str, alive: bool) -> Collection[tuple[str, str]]:
    """The population of a mailbox whose machine asks for `all` of nothing."""
    return ()


class Mailbox:
    """What has arrived for one machine; the same message of the same sender stands in it once. Not thread-safe."""

    def __init__(self, population: Population = nobody) -> None:
        self._letters: dict[tuple[str, str, str], Letter] = {}
        self._population = population

    def put(self, letter: Letter) -> None:
        """Adds a letter behind all others; a second one from the same sender, not yet taken, changes nothing."""
        self._letters.setdefault((letter.message, letter.sender, letter.engine), letter)

    def oldest(self, messages: Collection[str]) -> str:
        """The one of `messages` that arrived first, or an empty string."""
        for message, _, _ in self._letters:
            if message in messages:
                return message
        return ""

    def take(self, message: str) -> Letter | None:
        """Removes and returns the oldest letter of that message."""
        for key in self._letters:
            if key[0] == message:
                return self._letters.pop(key)
        return None

    def senders(self) -> set[str]:
        """The machines whose letters stand in it."""
        return {sender for _, sender, _ in self._letters}

    def any(self, message: str) -> bool:
        """Whether at least one engine has sent it."""
        return self.oldest((message,)) != ""

    def every(self, message: str, alive: bool) -> bool:
        """Whether everybody of the population has sent it; true when nobody has to."""
        return all((message, *who) in self._letters for who in self._population(message, alive))

    def missing(self, message: str, alive: bool = False) -> list[str]:
        """The engines of the population that have not sent it."""
        return [who[1] for who in self._population(message, alive) if (message, *who) not in self._letters]

    def drop(self, message: str, before: tuple[int, int]) -> int:
        """Drops letters of that message older than (generation, wave); returns how many."""
        old = [key for key, letter in self._letters.items() if letter.message == message and letter.age < before]
        for key in old:
            del self._letters[key]
        return len(old)

    def __len__(self) -> int:
        return len(self._letters)
