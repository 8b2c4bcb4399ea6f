"""Values that note how they are looked at: what a function read of a state decides which states it would treat alike.

A `Ref` stands for one number of a state (or for what a change made of it), a `View` for something that hangs on it: a
local state, its facts, one machine's stand. Asking one for a truth, an index, an item or a comparison notes the path
and the question; the function goes on with the real answer. So a function that was run once with them is known for all
states that give the same answers to the same questions.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

Step = tuple[Any, ...]  # one step of a path: a name and its arguments
Path = tuple[Step, ...]
Note = Callable[[int, Path, Path], None]  # place in the state, changes made to it, and the question

_STEPS: dict[str, Callable[..., Any]] = {
    ".": getattr,
    "[]": operator.getitem,
    "get": lambda value, key, other: value.get(key, other),
    "in": operator.contains,
    "none": lambda value: value is None,
    "len": len,
    "bool": bool,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "rshift": operator.rshift,
    "lshift": operator.lshift,
    "add": operator.add,
    "sub": operator.sub,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


def follow(value: Any, path: Path) -> Any:
    """The answer that a path gives on a value."""
    for step in path:
        value = _STEPS[step[0]](value, *step[1:])
    return value


def real(value: Any) -> Any:
    """The value itself; looking at it like this notes it as a whole."""
    return value.all() if isinstance(value, (Ref, View)) else value


class _Looked:
    """What both have in common: questions that are noted and answered."""

    __slots__ = ("_chain", "_note", "_path", "_place", "_value")

    def __init__(self, note: Note, place: int, chain: Path, path: Path, value: Any) -> None:
        self._note, self._place, self._chain, self._path, self._value = note, place, chain, path, value

    def ask(self, *step: Any) -> Any:
        """The answer to a question, noted."""
        self._note(self._place, self._chain, (*self._path, step))
        return follow(self._value, (step,))

    def all(self) -> Any:
        """The value, noted as a whole."""
        self._note(self._place, self._chain, self._path)
        return self._value

    def __index__(self) -> int:
        return int(self.all())

    def __int__(self) -> int:
        return int(self.all())

    def __hash__(self) -> int:
        return hash(self.all())

    def __bool__(self) -> bool:
        return bool(self.ask("bool"))

    def __eq__(self, other: object) -> bool:
        return bool(self.ask("eq", real(other)))

    def __ne__(self, other: object) -> bool:
        return bool(self.ask("ne", real(other)))

    def __lt__(self, other: Any) -> bool:
        return bool(self.ask("lt", real(other)))

    def __le__(self, other: Any) -> bool:
        return bool(self.ask("le", real(other)))

    def __gt__(self, other: Any) -> bool:
        return bool(self.ask("gt", real(other)))

    def __ge__(self, other: Any) -> bool:
        return bool(self.ask("ge", real(other)))

    def __invert__(self) -> int:
        return ~int(self.all())

    def _with(self, name: str, other: Any) -> Any:
        raise NotImplementedError

    def __and__(self, other: Any) -> Any:
        return self._with("and", other)

    def __or__(self, other: Any) -> Any:
        return self._with("or", other)

    def __xor__(self, other: Any) -> Any:
        return self._with("xor", other)

    def __rshift__(self, other: Any) -> Any:
        return self._with("rshift", other)

    def __lshift__(self, other: Any) -> Any:
        return self._with("lshift", other)

    def __add__(self, other: Any) -> Any:
        return self._with("add", other)

    def __sub__(self, other: Any) -> Any:
        return self._with("sub", other)

    __rand__, __ror__, __rxor__, __radd__ = __and__, __or__, __xor__, __add__


class View(_Looked):
    """Something that hangs on a number of a state."""

    __slots__ = ()

    def beside(self, first: Step, value: Any) -> Any:
        """Something else that hangs on the same number, noted as a whole."""
        return View(self._note, self._place, self._chain, (first,), value).all()

    def aside(self, first: Step, value: Any) -> Any:
        """Something else that hangs on the same number, or nothing, to be looked at in turn."""
        self._note(self._place, self._chain, (first, ("none",)))
        return None if value is None else View(self._note, self._place, self._chain, (first,), value)

    def peek(self) -> Any:
        """The value, for those who note by themselves what they use of it."""
        return self._value

    def _sub(self, step: Step, value: Any) -> Any:
        if isinstance(value, (bool, str)):
            self._note(self._place, self._chain, (*self._path, step))
            return value
        if step[0] in (".", "[]", "get"):  # what is there may be None in another state
            self._note(self._place, self._chain, (*self._path, step, ("none",)))
        return None if value is None else View(self._note, self._place, self._chain, (*self._path, step), value)

    def _with(self, name: str, other: Any) -> Any:
        """What is left after `&` and `>>` is a part and noted when it is used; other arithmetic needs the whole."""
        other = real(other)
        if name in ("and", "rshift"):
            return self._sub((name, other), _STEPS[name](self._value, other))
        return _STEPS[name](self.all(), other)

    def __getattr__(self, name: str) -> Any:
        if name == "get" and isinstance(self._value, dict):
            return lambda key, other=None: self._sub(("get", key, other), self._value.get(key, other))
        value = getattr(self._value, name)
        if callable(value):
            self.all()
            return value
        return self._sub((".", name), value)

    def __getitem__(self, key: Any) -> Any:
        key = real(key)
        return self._sub(("[]", key), self._value[key])

    def __contains__(self, key: Any) -> bool:
        return bool(self.ask("in", real(key)))

    def __len__(self) -> int:
        return int(self.ask("len"))

    def __iter__(self) -> Iterator[Any]:
        if isinstance(self._value, tuple):
            return (self[index] for index in range(len(self)))
        return iter(self.all())


class Ref(_Looked):
    """One number of a state. `then` is what a change makes of it; arithmetic on it is a change as well."""

    __slots__ = ("_change",)

    def __init__(self, note: Note, place: int, chain: Path, value: int, change: Callable[[int, Step], int]) -> None:
        super().__init__(note, place, chain, (), value)
        self._change = change

    @property
    def place(self) -> int:
        """Which number of the state it is, or was before the changes."""
        return self._place

    @property
    def chain(self) -> Path:
        """The changes, in order."""
        return self._chain

    def then(self, step: Step) -> Ref:
        """The number after a change."""
        return Ref(self._note, self._place, (*self._chain, step), self._change(self._value, step), self._change)

    def view(self, first: Step, value: Any) -> View:
        """What hangs on the number: `first` names how to come to it."""
        return View(self._note, self._place, self._chain, (first,), value)

    def peek(self) -> int:
        """The number, for those who note by themselves what they use of it."""
        return int(self._value)

    def _with(self, name: str, other: Any) -> Ref:
        other = real(other)
        return self.then((name, other))
