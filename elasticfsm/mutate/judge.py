"""Judges one mutant: refused by the loader or by lint, the same protocol, refuted by the checker, or a survivor."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

from elasticfsm import language
from elasticfsm.check.coverage import all_edges, gaps
from elasticfsm.check.fair import fairly_ends
from elasticfsm.check.move import Edge
from elasticfsm.check.starving import steps_go_on
from elasticfsm.check.verdict import Run, run
from elasticfsm.check.world import sizes_of
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.errors import SpecError
from elasticfsm.lint import lint
from elasticfsm.mutate.meaning import digest, without
from elasticfsm.mutate.mutants import Mutant, applied
from elasticfsm.mutate.stages import SIMPLER, Setting, Stage, stages_of
from elasticfsm.protocol import Protocol, find, load, parse, resolve
from elasticfsm.reading import Document, read
from elasticfsm.steps import made

ENOUGH = 5_000  # states after which a run in which something is wrong need not go on
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
    meaning: str = ""

    @property
    def killed(self) -> bool:
        """Whether something refused or refuted it."""
        return self.how in ("killed", "lint", "refused")


class Judge:
    """Knows a protocol without an edit: what its runs take, and which programs were judged already."""

    def __init__(self, spec: str, sizes: list[str] | None = None) -> None:
        self.spec = spec
        self.document: Document = read(find(spec))
        self.file: language.File = parse(self.document)
        self.protocol: Protocol = resolve(self.file, self.document)
        self.program: Program = compile_protocol(self.protocol)
        self.stages = stages_of(self.protocol, sizes)
        self.settings = list(dict.fromkeys(stage.setting for stage in self.stages))
        self.whole = {inside: load(inside) for inside, _ in self.settings if inside}
        self.programs = {setting: self._in(setting, self.protocol) for setting in self.settings}
        self.seen: dict[str, str] = {digest(self.program): ITSELF}
        self._taken: dict[Stage, Run] = {}
        self._never: dict[Setting, set[Edge]] = {}

    @property
    def key(self) -> str:
        """Changes with the protocol, with what it is explored with, and with the runs."""
        programs = " ".join(digest(program) for program in self.programs.values())
        return f"{programs} {'; '.join(map(str, self.stages))}"

    def judge(self, mutant: Mutant, first: str = "") -> Judged:
        """Judges a mutant by lint, then by the stages in their order, until something refutes it.

        `first` is the stage that refuted it before the protocol was changed: it is likely to do so again.
        """
        began = time.process_time()
        judged = Judged(mutant.name, mutant.kind, "survived")
        protocol = self._changed(mutant, judged)
        if protocol is not None:
            judged.meaning = digest(compile_protocol(protocol))
            same = self.seen.setdefault(judged.meaning, mutant.name)
            if same != mutant.name:
                judged.how, judged.said = "same", same
            else:
                self._check(protocol, judged, first)
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

    def _check(self, protocol: Protocol, judged: Judged, first: str) -> None:
        programs = {setting: self._in(setting, protocol) for setting in self.settings}
        taken: dict[Setting, set[Edge]] = {setting: set() for setting in self.settings}
        touched = False
        for stage in sorted(self.stages, key=lambda stage: str(stage) != first):
            program, base = programs[stage.setting], self.base(stage)
            if base.complete and self._alike(stage, program):
                taken[stage.setting] |= base.edges
                continue
            touched = True
            found = explored(program, stage, enough=not base.refuted)
            judged.states += found.states
            taken[stage.setting] |= found.edges
            wrong = set(found.refuted) - set(base.refuted)
            if wrong or not (found.complete or stage.fair):
                judged.how = "killed" if wrong else "unfinished"
                judged.by, judged.at = sorted(wrong), str(stage)
                return
        for setting, edges in taken.items():
            if setting[1]:
                continue  # what is simpler has fewer ways out
            new = sorted(set(gaps(programs[setting], edges, True)[0]) - self._vacuous(setting))
            if new:
                judged.how, judged.by, judged.at = "killed", [VACUOUS], "all runs"
                judged.said = " ".join(new[0])
                return
        judged.how = "survived" if touched else "beyond"

    def _alike(self, stage: Stage, program: Program) -> bool:
        """Whether a mutant differs only in what this run of the protocol never takes."""
        mine = self.programs[stage.setting]
        unused = all_edges(mine) - self.base(stage).edges
        return without(program, unused, stage.regime) == without(mine, unused, stage.regime)

    def _in(self, setting: Setting, protocol: Protocol) -> Program:
        inside, over = setting
        simpler = {name: load(SIMPLER[name]) for name in over}
        if inside:
            return compile_protocol(self.whole[inside], {**simpler, self.protocol.name: protocol})
        return compile_protocol(protocol, simpler)

    def base(self, stage: Stage) -> Run:
        """The same run of the protocol without an edit."""
        if stage not in self._taken:
            found = explored(self.programs[stage.setting], stage)
            if stage.fair:  # the ways that it takes are those of the same run without fairness
                found.edges = self.base(replace(stage, fair=False)).edges
            self._taken[stage] = found
        return self._taken[stage]

    def _vacuous(self, setting: Setting) -> set[Edge]:
        """What these runs never take of the protocol itself, although larger ones may."""
        if setting not in self._never:
            taken: set[Edge] = set()
            for stage in self.stages:
                taken |= self.base(stage).edges if stage.setting == setting else set()
            self._never[setting] = set(gaps(self.programs[setting], taken, True)[0])
        return self._never[setting]


def explored(program: Program, stage: Stage, enough: bool = False) -> Run:
    """One run; what goes wrong early in a long one is `enough`."""
    engines = sizes_of(program, stage.sizes)
    if stage.fair:
        return _fair(program, stage, engines)
    told = ENOUGH if enough else None
    return run(program, engines, stage.regime, limit=stage.limit, engine=stage.engine, enough=told)


def _fair(program: Program, stage: Stage, engines: dict[str, int]) -> Run:
    """Explored without reductions; where that is too much nothing is said."""
    look = steps_go_on if stage.inside else fairly_ends
    try:
        found, complete = look(program, engines, stage.regime, stage.limit), True
    except SpecError:
        found, complete = None, False
    refuted = {} if found is None else {found.property: found}
    told = Run(program.name, stage.sizes, str(stage), 0, 0, 0.0, False, complete, (), refuted)
    for refutation in refuted.values():
        refutation.trace = None
    return told
