"""Mutants: each is one edit, and lint or the checker finds it, or a committed file says why not."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from elasticfsm.errors import RequestRefused, SpecError
from elasticfsm.mutate.judge import Judge, Judged
from elasticfsm.mutate.mutants import KINDS, applied, mutants
from elasticfsm.mutate.score import Score, explained_in, score, told_once, unexplained
from elasticfsm.mutate.stages import stages_of
from elasticfsm.protocol import find, load, parse, shipped
from elasticfsm.reading import read

EXPLAINED = Path(__file__).parents[2] / "mutants"
TWICE = "engine.stepping: `step.forward: active` twice"  # harmless, as all engines do it
NEVER = "engine.stepping: without `step.forward: active`"
LOOP = "main.counting: `agreed spread` leads to counting"  # a rebalance is due, and its plan never comes
SAMPLE = {"serving": 9, "rebalance": 40}  # every so-manieth mutant; `make mutate` judges all


@pytest.mark.parametrize("name", shipped())
def test_every_mutant_differs_from_the_protocol_and_has_a_name_of_its_own(name: str) -> None:
    file = parse(read(find(name)))
    before = msgspec.json.encode(file)
    found = list(mutants(file))
    assert not [one for one, count in Counter(mutant.name for mutant in found).items() if count > 1]
    for mutant in found:
        changed, words = applied(mutant, file)
        own = mutant.where.startswith("steps.")
        assert (msgspec.json.encode(changed) != before) != own
        assert msgspec.json.encode(file) == before
        assert bool(words.steps) or not own


def test_every_kind_of_edit_is_made() -> None:
    made = {mutant.kind for name in shipped() for mutant in mutants(parse(read(find(name))))}
    assert made == set(KINDS)


def test_a_mutant_that_means_the_same_is_not_judged_again() -> None:
    judge = Judge("serving", ["1"])
    mutant = next(one for one in mutants(judge.file) if one.name == TWICE)
    assert judge.judge(mutant).how == "survived"
    assert judge.judge(replace(mutant, what="the same by another name")).how == "same"


def test_several_processes_tell_the_same_as_one() -> None:
    one, several = (score("serving", kind="change target", sizes=["1"], jobs=jobs) for jobs in (1, 2))
    told = [[(judged.name, judged.how, judged.by) for judged in found.judged] for found in (one, several)]
    assert told[0] == told[1]
    assert {how for _, how, _ in told[0]} >= {"lint", "killed"}


def test_of_mutants_that_mean_the_same_only_the_first_counts() -> None:
    judged = [Judged(name, "drop step", "survived", meaning="alike") for name in ("a", "b")]
    assert [(one.name, one.how, one.said) for one in told_once(judged)] == [("a", "survived", ""), ("b", "same", "a")]


def test_a_run_that_never_comes_to_the_edit_is_not_made_again() -> None:
    judge = Judge("rebalance", ["1"])
    mutant = next(one for one in mutants(judge.file) if one.name == "main.placing: `failed` leads to off")
    judged = judge.judge(mutant)
    assert (judged.how, judged.states) == ("beyond", 0)


def test_the_run_that_refuted_a_mutant_before_is_tried_first() -> None:
    judge = Judge("rebalance")
    mutant = next(one for one in mutants(judge.file) if one.name == LOOP)
    before = judge.judge(mutant)
    assert (before.how, before.at) == ("killed", "1, fault-free")
    later = Judge("rebalance").judge(mutant, "2, fault-free")
    assert (later.how, later.at) == ("killed", "2, fault-free")


def test_what_only_a_step_that_fails_inside_an_operation_shows_is_refuted() -> None:
    judge = Judge("rebalance")
    judge.stages = [
        stage for stage in judge.stages if stage.inside == "abstract/pausing" and stage.sizes == "1" and not stage.fair
    ]
    mutant = next(
        one for one in mutants(judge.file) if one.name == "main.confirming: `answer not_all` leads to confirming"
    )
    assert "good_end" in judge.judge(mutant).by


def test_operations_are_judged_with_every_kind_of_fault() -> None:
    for name in ("scale_up", "scale_down"):
        regimes = [stage.regime for stage in stages_of(load(name))]
        assert all(
            any(getattr(one, kind) for one in regimes) for kind in ("crashes", "losses", "duplicates", "failures")
        )
        assert any(one.restart for one in regimes)
        assert len(set(map(str, stages_of(load(name))))) == len(regimes)


def test_an_unknown_kind_is_refused_with_those_that_exist() -> None:
    with pytest.raises(SpecError, match="expected one of: drop step"):
        score("serving", kind="drop everything")


def test_what_was_judged_is_not_judged_again(tmp_path: Path) -> None:
    record = tmp_path / "record.jsonl"
    first = score("serving", record, "swap steps", ["1"])
    lines = record.read_bytes()
    again = score("serving", record, "swap steps", ["1"])
    assert [one.how for one in first.judged] == [one.how for one in again.judged]
    assert record.read_bytes() == lines


def test_a_survivor_without_a_reason_and_a_reason_without_a_survivor_are_told(tmp_path: Path) -> None:
    found = score("serving", sizes=["1"], chosen={TWICE, NEVER})
    assert [one.name for one in found.survivors] == [TWICE]
    path = tmp_path / "reasons.yaml"
    path.write_text(f"missed:\n  because:\n  - '{NEVER}'\n")
    told = unexplained(found, path)
    assert len(told) == 2
    assert TWICE in told[0]
    assert NEVER in told[1]


@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_mutants_is_killed_or_explained(name: str) -> None:
    found = score(name, every=SAMPLE[name])
    assert isinstance(found, Score)
    assert found.killed
    assert unexplained(found, EXPLAINED / f"{name}.yaml") == []


@pytest.mark.parametrize("path", sorted(EXPLAINED.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_explained_mutant_exists(path: Path) -> None:
    said = explained_in(path)
    assert set(said.values()) <= {"equivalent", "missed"}
    assert set(said) <= {mutant.name for mutant in mutants(parse(read(find(path.stem))))}


@pytest.mark.parametrize(
    "text", ["equivalent", "equivalent: a", "else: {reason: [a]}", "equivalent: {reason: a}", "[", "{"]
)
def test_a_file_of_reasons_that_reads_otherwise_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "explained.yaml"
    path.write_text(text)
    with pytest.raises(RequestRefused, match=r"explained\.yaml: "):
        explained_in(path)


def test_a_record_of_something_else_is_refused_before_a_mutant_is_judged(tmp_path: Path) -> None:
    record = tmp_path / "other.json"
    record.write_text("[1]\n")
    with pytest.raises(RequestRefused, match=r"other\.json: "):
        score("serving", record, every=100)
    assert record.read_text() == "[1]\n"


def test_a_machine_that_runs_in_a_circle_does_not_keep_the_checker_for_ever() -> None:
    judge = Judge("rebalance", ["1"])
    circle = next(one for one in mutants(judge.file) if one.name == "main.finishing: `done` leads to finishing")
    assert judge.judge(circle).states
