"""Judges one mutant: refused by the loader or by lint, the same protocol, refuted by the checker, or a survivor."""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec

from elasticfsm import language
from elasticfsm.check.coverage import all_edges, gaps
from elasticfsm.check.move import Edge
from elasticfsm.check.verdict import Run, run
from elasticfsm.check.world import CALM, Regime, sizes_of
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.errors import SpecError
from elasticfsm.lint import lint
from elasticfsm.mutate.mutants import Mutant, applied
from elasticfsm.protocol import Protocol, find, load, parse, resolve, shipped
from elasticfsm.reading import Document, read
from elasticfsm.steps import made

LIMIT = 100_000  # states of a run; the protocols themselves stay below a fifth of that
AHEAD = (4_000, 40_000)  # a longer run is looked at here first: most mistakes show early
ITSELF = "the protocol itself"
VACUOUS = "vacuous"  # refused like a protocol with a way out that no run takes


@dataclass
class Judged:
    """What became of one mutant; `by` names the properties that refute it.

    `how` is killed; lint or refused; same (as another mutant); beyond: it differs only where none of the runs come,
    on ways out that faults or a world outside take; unfinished: too many states; or survived.
    """

    name: str
    kind: str
    how: str
    by: list[str] = field(default_factory=list)
    at: str = ""
    said: str = ""
    states: int = 0
    seconds: float = 0.0

    @property
    def killed(self) -> bool:
        """Whether something refused or refuted it."""
        return self.how in ("killed", "lint", "refused")


@dataclass(frozen=True)
class Stage:
    """One run that a mutant has to survive: by itself, or `inside` a protocol that stands on it."""

    sizes: str
    regime: Regime
    limit: int
    inside: str = ""

    def __str__(self) -> str:
        return f"{self.sizes}, {self.regime}{f', inside {self.inside}' if self.inside else ''}"


class Judge:
    """Knows a protocol without an edit: what its runs take, and which programs were judged already."""

    def __init__(self, spec: str, sizes: list[str] | None = None) -> None:
        self.spec = spec
        self.document: Document = read(find(spec))
        self.file: language.File = parse(self.document)
        self.protocol: Protocol = resolve(self.file, self.document)
        self.program: Program = compile_protocol(self.protocol)
        self.stages = stages_of(spec, self.program, sizes)
        self.whole = {name: load(name) for name in dict.fromkeys(stage.inside for stage in self.stages) if name}
        self.seen: dict[str, str] = {digest(self.program): ITSELF}
        self._taken: dict[Stage, Run] = {}
        self._never: dict[str, set[Edge]] = {}

    def judge(self, mutant: Mutant) -> Judged:
        """Judges a mutant by lint, then by the stages in their order, until something refutes it."""
        began = time.process_time()
        judged = Judged(mutant.name, mutant.kind, "survived")
        protocol = self._changed(mutant, judged)
        if protocol is not None:
            same = self.seen.setdefault(digest(compile_protocol(protocol)), mutant.name)
            if same != mutant.name:
                judged.how, judged.said = "same", same
            else:
                self._check(protocol, judged)
        judged.seconds = round(time.process_time() - began, 2)
        return judged

    def _changed(self, mutant: Mutant, judged: Judged) -> Protocol | None:
        """The mutant as a protocol; None if it cannot be used, or if lint refuses it."""
        try:
            file, vocabulary = applied(mutant, self.file, self.protocol.vocabulary)
            if mutant.where.startswith("steps."):
                file.vocabulary = made(vocabulary)
            protocol = resolve(file, self.document)
            compile_protocol(protocol)
        except SpecError as error:
            judged.how, judged.said = "refused", str(error).splitlines()[-1]
            return None
        found = lint(protocol)
        if found:
            judged.how, judged.said = "lint", str(found[0])
            return None
        return protocol

    def _check(self, protocol: Protocol, judged: Judged) -> None:
        edges: dict[str, set[Edge]] = {}
        touched = False
        programs = {name: self._inside(name, protocol) for name in dict.fromkeys(s.inside for s in self.stages)}
        for stage in self.stages:
            program, taken = programs[stage.inside], edges.setdefault(stage.inside, set())
            base = self._base(stage)
            unused = all_edges(base_program := self._inside(stage.inside, self.protocol)) - base.edges
            if base.complete and _without(program, unused) == _without(base_program, unused):
                taken |= base.edges
                continue
            touched = True
            found = explored(program, stage)
            judged.states += found.states
            taken |= found.edges
            if found.refuted or not found.complete:
                judged.how = "killed" if found.refuted else "unfinished"
                judged.by, judged.at = sorted(found.refuted), str(stage)
                return
        for name, taken in edges.items():
            new = sorted(set(gaps(programs[name], taken, True)[0]) - self._vacuous(name))
            if new:
                judged.how, judged.by, judged.at = "killed", [VACUOUS], "all runs"
                judged.said = " ".join(new[0])
                return
        judged.how = "survived" if touched and judged.kind != "drop deadline" else "beyond"  # nothing expires here

    def _inside(self, name: str, protocol: Protocol) -> Program:
        return compile_protocol(self.whole[name], {self.spec: protocol}) if name else compile_protocol(protocol)

    def _base(self, stage: Stage) -> Run:
        """The same run of the protocol without an edit."""
        if stage not in self._taken:
            self._taken[stage] = explored(self._inside(stage.inside, self.protocol), stage)
        return self._taken[stage]

    def _vacuous(self, name: str) -> set[Edge]:
        """What these runs never take of the protocol itself, although larger ones may."""
        if name not in self._never:
            taken: set[Edge] = set()
            for stage in self.stages:
                taken |= self._base(stage).edges if stage.inside == name else set()
            self._never[name] = set(gaps(self._inside(name, self.protocol), taken, True)[0])
        return self._never[name]


def explored(program: Program, stage: Stage) -> Run:
    """One run, to the end if it is small, and otherwise in parts: what is refuted in the first need not go on."""
    engines = sizes_of(program, stage.sizes)
    for limit in (*(ahead for ahead in AHEAD if ahead < stage.limit), stage.limit):
        found = run(program, engines, stage.regime, limit=limit)
        if found.complete or found.refuted:
            return found
    return found


def stages_of(spec: str, program: Program, sizes: list[str] | None = None) -> list[Stage]:
    """The runs that mutants of a protocol have to survive, the cheapest first."""
    regimes = _regimes(program)
    if sizes:
        for size in sizes:
            sizes_of(program, size)  # refused at once, not by the first mutant
        return [Stage(size, regime, LIMIT) for regime in regimes for size in sizes]
    if len(program.roles) > 1:
        return [*(Stage("1+1", regime, LIMIT) for regime in regimes), Stage("2+1", CALM, LIMIT)]
    fails = (
        [Regime(failures=1)] if any(m.inside for m in program.machines.values()) else []
    )  # it has a thread of its own
    alone = [Stage(size, regime, LIMIT) for regime in (CALM, *fails) for size in ("1", "2")]
    above = [name for name in shipped() if spec in load(name).over and _regimes(compile_protocol(load(name))) != [CALM]]
    return [*alone, *(Stage("1+1", CALM, LIMIT, name) for name in above)]


def _regimes(program: Program) -> list[Regime]:
    cancels = any(route.sender == "operator" and route.message == "cancel" for route in program.routes)
    return [CALM, Regime(cancel=True)] if cancels else [CALM]


def digest(program: Program) -> str:
    """Equal for programs that mean the same to the checker: names of files and of vocabularies do not count."""
    return hashlib.sha256(msgspec.json.encode(_plain(program), order="deterministic")).hexdigest()[:16]


def _without(program: Program, unused: set[Edge]) -> str:
    """The digest of a program without ways out that a complete run of it never takes: they make no difference there."""
    plain = _plain(program)
    for name, machine in plain["machines"].items():
        for state, entry in machine["states"].items():
            entry["leave"] = [way for way in entry["leave"] if (name, state, way[0]) not in unused]
    return hashlib.sha256(msgspec.json.encode(plain, order="deterministic")).hexdigest()


def _plain(program: Program) -> dict[str, Any]:
    machines = {
        name: {
            "starts": machine.starts,
            "first": machine.first,
            "inside": machine.inside,
            "holds": sorted(machine.holds),
            "states": {
                state.name: {
                    "thread": state.thread if state.steps else "",
                    "steps": [str(step) for step in state.steps],
                    "sends": sorted(state.sends),
                    "leave": [(str(way.guard), way.target) for way in state.leave],
                    "serves": state.serves,
                    "end": state.end,
                    "forever": state.within == "forever",
                }
                for state in machine.states.values()
            },
        }
        for name, machine in program.machines.items()
    }
    return {
        "machines": machines,
        "roles": program.roles,
        "started": program.started,
        "groups": program.groups,
        "votes": sorted(program.votes),
        "waves": program.waves,
        "routes": sorted(str(route) for route in program.routes),
        "steps": {name: msgspec.to_builtins(step) for name, step in sorted(program.steps.items())},
        "facts": program.facts,
    }
