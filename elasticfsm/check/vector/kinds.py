"""Numbered things and what follows from a number, as columns: computed once by the plain code, then looked up."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elasticfsm.check.successors import Successors
from elasticfsm.check.vector.views import Path, Step, follow

Column = NDArray[np.intp]
Question = tuple[Path, Path]  # changes that come first, and a path to the answer
UNSEEN = -1


class Lazy:
    """A column over numbers whose entries are computed when first asked for."""

    def __init__(self, compute: Callable[[int], int]) -> None:
        self._compute = compute
        self._known: Column = np.full(64, UNSEEN, np.intp)

    def __call__(self, numbers: Column) -> Column:
        """The entries of these numbers."""
        if not numbers.size:
            return numbers
        try:
            found = self._known.take(numbers)
        except IndexError:
            self._known = grown(self._known, int(numbers.max()) + 1)
            found = self._known.take(numbers)
        if found.min() == UNSEEN:
            for number in np.unique(numbers[found == UNSEEN]).tolist():
                self._known[number] = self._compute(number)
            found = self._known.take(numbers)
        return found

    def one(self, number: int) -> int:
        """The entry of one number."""
        return int(self(np.array([number], np.intp))[0])


def grown(column: NDArray[Any], count: int) -> NDArray[Any]:
    """The column with room for at least `count` entries; new ones are UNSEEN."""
    more = np.full(max(count, 2 * len(column)), UNSEEN, column.dtype)
    more[: len(column)] = column
    return more


class Kind:
    """One kind of number in a state: what it stands for, changes of it, questions about it, and classes of answers."""

    def __init__(self) -> None:
        self._changes: dict[Step, Lazy] = {}
        self._classes: dict[tuple[Question, ...], Classes] = {}
        self._asked: dict[Question, Answers] = {}

    def value(self, number: int, first: Step) -> Any:
        """What hangs on a number."""
        raise NotImplementedError

    def change(self, number: int, step: Step) -> int:
        """The number after a change."""
        raise NotImplementedError

    def changed(self, numbers: Column, chain: Path) -> Column:
        """The numbers after some changes."""
        for step in chain:
            if step not in self._changes:
                self._changes[step] = Lazy(lambda number, step=step: self.change(number, step))  # type: ignore[misc]
            numbers = self._changes[step](numbers)
        return numbers

    def answer(self, number: int, chain: Path, path: Path) -> Hashable:
        """What a question says about a number after some changes; one that makes no sense is an answer as well."""
        try:
            for step in chain:
                number = self.change(number, step)
            answer = follow(self.value(number, path[0]), path[1:]) if path else number
            hash(answer)
        except (StopIteration, IndexError, KeyError, TypeError, AttributeError) as error:
            return ("senseless", type(error).__name__)
        return (type(answer).__name__, answer)

    def classes(self, questions: tuple[Question, ...]) -> Classes:
        """Numbers by their answers to some questions, each with the changes that come before it."""
        if questions not in self._classes:
            for question in questions:
                if question not in self._asked:
                    self._asked[question] = Answers(self, question)
            self._classes[questions] = Classes([self._asked[question] for question in questions])
        return self._classes[questions]


class Answers(dict[int, int]):
    """What one question says of each number, as small numbers: equal for equal answers."""

    def __init__(self, kind: Kind, question: Question) -> None:
        super().__init__()
        self._kind, self._question = kind, question
        self._seen: dict[Hashable, int] = {}

    def __missing__(self, number: int) -> int:
        answer = self._kind.answer(number, *self._question)
        found = self[number] = self._seen.setdefault(answer, len(self._seen))
        return found


class Classes(Lazy):
    """Numbers that give the same answers to some questions are in one class."""

    def __init__(self, asked: list[Answers]) -> None:
        super().__init__(self._find)
        self._asked = asked
        self._seen: dict[tuple[int, ...], int] = {}

    def _find(self, number: int) -> int:
        answers = tuple([asked[number] for asked in self._asked])
        return self._seen.setdefault(answers, len(self._seen))

    @property
    def count(self) -> int:
        """How many classes were found so far."""
        return len(self._seen)


class Engines(Kind):
    """Local states of engines, by the numbers that the world gave them."""

    def __init__(self, successors: Successors) -> None:
        super().__init__()
        self._successors = successors

    def value(self, number: int, first: Step) -> Any:
        """`known`, the local state itself, or the answer of a function that `first` carries."""
        if first[0] == "known":
            return self._successors.known[number]
        if first[0] == "local":
            return self._successors.world.locals[number]
        if first[0] == "of":
            return first[1](self._successors.world.locals[number], *first[2:])
        return first[1](number, *first[2:])

    def change(self, number: int, step: Step) -> int:
        """A change as `Successors` makes it."""
        if step[0] == "settle":
            return self._successors.settled[number]
        return self._successors.change(step[0], number, *step[1:])


class Coordinators(Kind):
    """States of the coordinator, by the numbers that the world gave them."""

    def __init__(self, successors: Successors) -> None:
        super().__init__()
        self._successors = successors

    def value(self, number: int, first: Step) -> Any:
        """The state itself, or the answer of a function that `first` carries."""
        if first[0] == "local":
            return self._successors.world.bosses[number]
        return first[1](number, *first[2:])

    def change(self, number: int, step: Step) -> int:
        """A change as `Successors` makes it."""
        return self._successors.turn(step[0], number, *step[1:])


class Whole(Kind):
    """Integers as they stand in a state (messages between engines), numbered here."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[int] = []
        self._numbers: dict[int, int] = {}

    def number(self, value: int) -> int:
        """The number of an integer."""
        found = self._numbers.get(value)
        if found is None:
            found = self._numbers[value] = len(self.values)
            self.values.append(value)
        return found

    def answer(self, number: int, chain: Path, path: Path) -> Hashable:
        """What a question says about an integer after some arithmetic."""
        return (follow(self.values[number], (*chain, *path)),)

    def change(self, number: int, step: Step) -> int:
        """One operation of arithmetic."""
        return self.number(follow(self.values[number], (step,)))
