"""Runs all mutants of a protocol, remembers what became of each, and tells the score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec
import yaml

from elasticfsm.errors import RequestRefused, SpecError
from elasticfsm.mutate.crew import judged_by
from elasticfsm.mutate.judge import Judge, Judged
from elasticfsm.mutate.mutants import KINDS, Mutant, mutants

Progress = Callable[[int, int, Judged], None]
Explained = Literal["equivalent", "missed"]


@dataclass
class Score:
    """What became of the mutants of one protocol.

    Those that are the protocol itself, or another mutant, do not count; nor do those beyond the runs that were made.
    """

    spec: str
    judged: list[Judged]
    whole: bool = True  # every mutant was judged, not some of them

    @property
    def counted(self) -> list[Judged]:
        """Every mutant that is a protocol of its own."""
        return [one for one in self.judged if one.how not in ("same", "beyond")]

    @property
    def killed(self) -> list[Judged]:
        """Those that something refused or refuted."""
        return [one for one in self.counted if one.killed]

    @property
    def survivors(self) -> list[Judged]:
        """Those that hold like the protocol itself, and those whose run was too large to tell."""
        return [one for one in self.counted if not one.killed]

    def only(self) -> dict[str, tuple[int, int]]:
        """For lint and each property: how many mutants it kills, and how many nothing else kills (`contracts` apart).

        `contracts` is refuted with the property of every fact that is missing, so it says nothing of its own.
        """
        total: Counter[str] = Counter()
        alone: Counter[str] = Counter()
        for one in self.killed:
            by = one.by or ["lint"]
            named = [name for name in by if name != "contracts"] or by
            total.update(named)
            alone.update(named if len(named) == 1 else [])
        return {name: (count, alone[name]) for name, count in total.most_common()}


def score(
    spec: str,
    record: Path | None = None,
    kind: str = "",
    sizes: list[str] | None = None,
    chosen: set[str] | None = None,
    every: int = 1,
    progress: Progress | None = None,
    jobs: int = 1,
) -> Score:
    """Judges every mutant of a protocol that `record` does not know yet, and writes each result there at once.

    `every` takes a sample: every so-manieth mutant; `jobs` processes share the work. Blocks for minutes. Raises
    `SpecError` for an unknown kind.
    """
    if kind and kind not in KINDS:
        raise SpecError(f"no mutants of the kind `{kind}`; expected one of: {', '.join(KINDS)}")
    judge = Judge(spec, sizes)
    wanted = list(mutants(judge.file, judge.protocol.vocabulary))[::every]
    wanted = [mutant for mutant in wanted if _wanted(mutant, kind, chosen)]
    known, before = _known(record, judge.key)
    left = [(mutant, before.get(mutant.name, "")) for mutant in wanted if mutant.name not in known]
    for count, judged in enumerate(judged_by(judge, left, jobs), 1):
        known[judged.name] = judged
        _remember(record, judge.key, judged)
        if progress is not None:
            progress(count, len(left), judged)
    return Score(spec, told_once([known[mutant.name] for mutant in wanted]), not kind and chosen is None and every == 1)


def told_once(judged: list[Judged]) -> list[Judged]:
    """Of several that mean the same, judged by several processes, only the first counts."""
    first: dict[str, str] = {}
    told: list[Judged] = []
    for one in judged:
        same = first.setdefault(one.meaning, one.name) if one.meaning else one.name
        told.append(one if same == one.name else replace(one, how="same", said=same))
    return told


def unexplained(found: Score, path: Path) -> list[str]:
    """What differs between the survivors and a committed file of them, in words; empty if nothing."""
    reasons = set(explained_in(path))
    names = {one.name for one in found.survivors}
    every = {one.name for one in found.judged}
    told = [f"survives without an explanation in {path}: {name}" for name in sorted(names - reasons)]
    told += [f"does not survive, but {path} explains why: {name}" for name in sorted((reasons & every) - names)]
    told += [f"explained in {path}, but no mutant: {name}" for name in sorted(reasons - every) if found.whole]
    return told


def explained_in(path: Path) -> dict[str, Explained]:
    """The mutants that a file explains, and as what: `equivalent` (right as well) or `missed` (wrong, and not found).

    The file has these two words as keys, under each the reasons, and under each reason the names of mutants.
    RequestRefused when it reads otherwise.
    """
    try:
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        said = msgspec.convert(yaml.safe_load(text) or {}, dict[Explained, dict[str, list[str]]])
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise RequestRefused(
            f"{path}: {error}; expected `equivalent` or `missed`, under it reasons, under each names of mutants"
        ) from None
    return {name: what for what, reasons in said.items() for names in reasons.values() for name in names}


def _wanted(mutant: Mutant, kind: str, chosen: set[str] | None) -> bool:
    return (not kind or mutant.kind == kind) and (chosen is None or mutant.name in chosen)


def _known(record: Path | None, key: str) -> tuple[dict[str, Judged], dict[str, str]]:
    """What a record says of the same protocol under the same runs, and what refuted the mutants of an older one."""
    if record is None or not record.exists():
        return {}, {}
    try:
        lines = [msgspec.json.decode(line, type=dict) for line in record.read_bytes().splitlines() if line.strip()]
        judged = [(line.get("key"), Judged(**line["judged"])) for line in lines]
    except (OSError, UnicodeDecodeError, msgspec.MsgspecError, KeyError, TypeError) as error:
        raise RequestRefused(f"{record}: {error}; expected what --json wrote before, or give a new file") from None
    return {one.name: one for of, one in judged if of == key}, {one.name: one.at for _, one in judged}


def _remember(record: Path | None, key: str, judged: Judged) -> None:
    if record is not None:
        with record.open("ab") as file:
            file.write(msgspec.json.encode({"key": key, "judged": asdict(judged)}) + b"\n")
