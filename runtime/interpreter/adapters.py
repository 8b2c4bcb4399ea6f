"""Steps of the spec bound to the methods that perform them: `groups.create: standby` is groups.create("standby")."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from elasticfsm.compile import Program
from elasticfsm.errors import ElasticError
from elasticfsm.machine import Undeclared
from elasticfsm.protocol import Machine, Step
from elasticfsm.seat import Cancel

_CANCEL = ("cancel", "cancelled")  # a step method with a parameter of this name is told when its list is withdrawn


class Cancelled(ElasticError):
    """The list of steps was withdrawn before it ended."""


class Adapters:
    """The hands of one engine: objects by name; the methods are looked up once."""

    def __init__(self, objects: Mapping[str, object]) -> None:
        self._objects = dict(objects)
        self._bound: dict[str, tuple[Callable[..., Any], str]] = {}

    def need(self, who: str, machines: Iterable[Machine]) -> None:
        """Raises `ElasticError` naming every step of these machines that no adapter performs."""
        steps = {step.name for machine in machines for state in machine.states.values() for step in state.steps}
        missing = sorted(name for name in steps if self._find(name) is None)
        if missing:
            raise ElasticError(
                f"{who}: no adapter performs {', '.join(missing)}; a step `a.b` is the method b of adapter `a`, "
                f"and the adapters given are {', '.join(sorted(self._objects)) or 'none'}"
            )

    def perform(self, step: Step, cancel: Cancel) -> object:
        """Runs the step on the calling thread and returns what its method returned; its errors pass through."""
        bound = self._find(step.name)
        if bound is None:
            raise ElasticError(f"no adapter performs {step.name}")
        method, parameter = bound
        keywords = {parameter: cancel} if parameter else {}
        return method(*([step.argument] if step.argument else []), **keywords)

    def _find(self, name: str) -> tuple[Callable[..., Any], str] | None:
        if name not in self._bound:
            adapter, _, verb = name.partition(".")
            method = getattr(self._objects.get(adapter), verb, None)
            if not callable(method):
                return None
            parameters = inspect.signature(method).parameters
            self._bound[name] = (method, next((name for name in _CANCEL if name in parameters), ""))
        return self._bound[name]


def answer_of(step: Step, value: object) -> str:
    """The answer that a step gave; raises `Undeclared` when its vocabulary entry lists answers and this is none."""
    answers = step.meaning.answers
    answer = getattr(value, "answer", value)
    if not answers:
        return ""
    if not isinstance(answer, str) or answer not in answers:
        raise Undeclared(f"the step `{step}` answered {answer!r}; steps.yaml allows {', '.join(answers)}")
    return answer


def check_adapters(programs: Mapping[str, Program], adapters: Mapping[str, object]) -> None:
    """Raises `ElasticError` unless the adapters perform every step of every machine that lives in an engine."""
    hands = Adapters(adapters)
    for program in programs.values():
        names = {name for inside in program.roles.values() for name in inside}
        hands.need(program.name, (program.machines[name] for name in sorted(names)))
