"""Static checks of contracts: what a step needs must be provided by a step of the engines that must hold it."""

from __future__ import annotations

from collections.abc import Iterator

from elasticfsm.compile import Program
from elasticfsm.finding import Finding, finding
from elasticfsm.protocol import Machine, Protocol, State, Step
from elasticfsm.reading import Document, Place
from elasticfsm.steps import fact_pattern, vocabulary_at
from elasticfsm.usable import COORDINATOR, place_of

_RENAMED = {"standby": "active", "active": "retired"}  # what groups.switch makes of a group's name


def facts(
    protocol: Protocol, program: Program, document: Document, reachable: dict[str, set[str]]
) -> Iterator[Finding]:
    """Facts that are needed and never provided (errors), and provided but never needed (warnings)."""
    inside = {**program.roles, **({COORDINATOR: (program.coordinator,)} if program.coordinator else {})}
    provided = {role: _provided(program, names, protocol, reachable) for role, names in inside.items()}
    everybody = set().union(*provided.values()) if provided else set()
    for machine, _, step, place in _steps(protocol):
        mine = _role_of(program, f"{protocol.name}.{machine.role}")
        for fact in _needed(step):
            who, wanted = _holders(fact, mine, program)
            missing = [role for role in who if wanted not in provided.get(role, set())]
            if missing:
                yield _never_provided(document, place, step, fact, missing, wanted in everybody)
    needed = _all_needed(program)
    part_of_others = COORDINATOR not in protocol.machines  # what it provides may be needed above it
    for machine, state, step, place in _steps(protocol):
        if state.name in reachable[machine.role] and machine.role != COORDINATOR:  # its facts concern it alone
            for fact in step.facts("provides"):
                if fact not in needed and not (part_of_others and _needed_somewhere(fact, protocol.vocabulary)):
                    yield _never_needed(document, place, step, fact)


def _steps(protocol: Protocol) -> Iterator[tuple[Machine, State, Step, Place]]:
    for machine in protocol.machines.values():
        for state in machine.states.values():
            for index, step in enumerate(state.steps):
                yield machine, state, step, (*place_of(machine, state), state.thread, index)


def _needed(step: Step) -> tuple[str, ...]:
    asked = (step.meaning.asks,) if step.meaning.asks else ()
    return (*step.facts("requires"), *step.facts("awaits"), *asked)


def _all_needed(program: Program) -> set[str]:
    """Every fact that some step or machine of the program needs, under each name that it has had before."""
    machines = program.machines.values()
    needed = {fact for m in machines for state in m.states.values() for step in state.steps for fact in _needed(step)}
    needed |= {fact for machine in machines for fact in machine.holds}
    needed = {" ".join(fact.split()[2:]) if fact.startswith("all ") else fact for fact in needed}
    for before, after in reversed(_RENAMED.items()):
        needed |= {fact.replace(f"{after} ", f"{before} ", 1) for fact in needed if fact.startswith(f"{after} ")}
    return needed


def _needed_somewhere(fact: str, words: str) -> bool:
    """Whether some step of the vocabulary needs such a fact."""
    known = vocabulary_at(words)
    needed = {need for m in known.steps.values() for need in (*m.requires, *m.awaits, *filter(None, (m.asks,)))}
    patterns = {fact_pattern(need, known.facts) for need in needed}
    return fact_pattern(fact, known.facts) in patterns


def _provided(
    program: Program, inside: tuple[str, ...], protocol: Protocol, reachable: dict[str, set[str]]
) -> set[str]:
    """Every fact that may hold on an engine with these machines, under each name that a switch gives it."""
    found: set[str] = set()
    switches = False
    for name in inside:
        machine = program.machines[name]
        seen = reachable[machine.role] if name == f"{protocol.name}.{machine.role}" else set(machine.states)
        steps = [step for state in machine.states.values() if state.name in seen for step in state.steps]
        found |= {fact for step in steps for fact in step.facts("provides")}
        found |= set(machine.holds) if name in program.started.get(_role_of(program, name), ()) else set()
        switches |= any(step.meaning.means == "rename" for step in steps)
    for before, after in _RENAMED.items() if switches else ():
        found |= {fact.replace(f"{before} ", f"{after} ", 1) for fact in found if fact.startswith(f"{before} ")}
    return found


def _role_of(program: Program, name: str) -> str:
    return next((role for role, inside in program.roles.items() if name in inside), COORDINATOR)


def _holders(fact: str, mine: str, program: Program) -> tuple[list[str], str]:
    """The roles on whose engines a fact must hold, and the fact without its `all ROLE`."""
    words = fact.split()
    if words[0] != "all":
        return [mine], fact
    named = words[1]
    return ([named] if named in program.roles else list(program.roles)), " ".join(words[2:])


def _never_provided(
    document: Document, place: Place, step: Step, fact: str, missing: list[str], elsewhere: bool
) -> Finding:
    found = f"`{step}`, which needs `{fact}`: no step of {' or '.join(missing)} provides it"
    fix = "provide it there too" if elsewhere else "add the step that provides it before this one"
    return finding(document, place, found, "a step that can be reached and provides it", fix)


def _never_needed(document: Document, place: Place, step: Step, fact: str) -> Finding:
    found = f"`{step}`, which provides `{fact}`: no step needs it"
    return finding(document, place, found, "a step that requires or awaits it", "say who needs it", "warning")
