"""vLLM's own busy loop and state machine, three engine processes, 2 -> 3 -> 2, watched and not watched."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from elasticfsm.explain import explain, text
from elasticfsm.journal import read
from elasticfsm.trace import validate

RELEASES = ["0.32.0", "0.33.0"]
RUNS = 5
SABOTAGES = ("monitor", "after", "recorder", "begin", "group", "watch")
RIG = Path(__file__).parent / "rig.py"
RESULTS = "tokens", "verbs", "kv", "size", "dp", "end", "error"

Results = dict[str, dict[str, Any]]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


class Runs:
    """All runs with one release of vLLM: their results and the directories of their journals."""

    def __init__(self, release: str, directory: Path, results: Results) -> None:
        self.release, self.directory, self.results = release, directory, results

    def journals(self, name: str) -> Path:
        return self.directory / name

    def outcome(self, name: str) -> dict[str, Any]:
        """Everything that a user of vLLM could tell apart, without times."""
        result = self.results[name]
        engines = {rank: {key: each[key] for key in RESULTS} for rank, each in result["engines"].items()}
        return {"error": result["error"], "notifications": result["notifications"], "engines": engines}


def orders(directory: Path) -> list[dict[str, Any]]:
    plain = [
        {"name": f"{mode}-{number}", "mode": mode} for mode in ("off", "observe", "guard") for number in range(RUNS)
    ]
    others = [
        {"name": "inverted-guard", "mode": "guard", "inverted": [0, 1]},
        {"name": "inverted-one-guard", "mode": "guard", "inverted": [1]},
        {"name": "inverted-observe", "mode": "observe", "inverted": [0, 1], "timeout": 10},
        {"name": "inverted-off", "mode": "off", "inverted": [0, 1], "timeout": 10},
        {"name": "stopped", "mode": "observe", "stop": 1, "timeout": 60},
        {"name": "driven-one", "mode": "off", "driven": [0]},
        {"name": "driven-all", "mode": "off", "driven": [0, 1, 2]},
        *({"name": f"sabotage-{what}", "mode": "guard", "sabotage": what} for what in SABOTAGES),
    ]
    return [{"timeout": 30, "new": 2, "journal": str(directory / one["name"]), **one} for one in [*plain, *others]]


FRESH = """
import sys
from types import SimpleNamespace
from vllm.plugins import load_general_plugins
load_general_plugins()
early = [name for name in sys.modules if "elastic_ep" in name or name.startswith("elasticfsm.embed")]
from vllm.distributed.elastic_ep import elastic_state
from vllm.distributed.elastic_ep.elastic_execute import ElasticEPScalingExecutor
class Worker:
    rank, vllm_config = 1, SimpleNamespace(parallel_config=SimpleNamespace(data_parallel_rank=0))
worker = Worker()
try:
    ElasticEPScalingExecutor(worker).execute("clear_async")
except RuntimeError as error:
    print(early, elastic_state.ElasticEPScalingState.__name__, elastic_state.torch.__class__.__name__, error)
"""


def environment_of(release: str, vllm_venv: Path) -> dict[str, str]:
    """The environment in which the interpreter of the venv sees that release."""
    sources = vllm_venv / "sources"
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    if release == "0.33.0":
        if not sources.exists():
            pytest.skip(f"{sources} is missing: tools/vllm-venv without SOURCES= takes them from the wheel")
        environment["PYTHONPATH"] = str(sources)
    return environment


@pytest.fixture(scope="module", params=RELEASES)
def runs(request: pytest.FixtureRequest, vllm_venv: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runs]:
    directory = tmp_path_factory.mktemp(f"vllm-{request.param}")
    environment = environment_of(request.param, vllm_venv)
    path = directory / "orders.json"
    path.write_text(json.dumps(orders(directory)))
    command = [str(vllm_venv / "bin" / "python"), str(RIG), str(path)]
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=500, env=environment, cwd=directory, check=False
    )
    results = [json.loads(line[7:]) for line in ran.stdout.splitlines() if line.startswith("RESULT ")]
    assert len(results) == len(orders(directory)), ran.stderr[-3000:]
    assert f"vllm {request.param}" in ran.stdout
    yield Runs(request.param, directory, {result["name"]: result for result in results})


@pytest.mark.parametrize("release", RELEASES)
def test_vllm_finds_the_plugin_which_waits_for_the_elastic_modules(
    release: str, vllm_venv: Path, tmp_path: Path
) -> None:
    switches = {"ELASTICFSM_VLLM": "observe", "ELASTICFSM_JOURNAL": str(tmp_path)}
    environment = environment_of(release, vllm_venv) | switches
    command = [str(vllm_venv / "bin" / "python"), "-c", FRESH]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    said = ran.stdout.splitlines()[-1]
    assert said == "[] ElasticEPScalingState _Torch No Elastic EP async method is active"
    lines = (tmp_path / "workers" / "engine0.1.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == ["rpc.clear_async"] * 2


def test_a_watched_run_gives_the_same_results_and_notifications(runs: Runs) -> None:
    plain = runs.outcome("off-0")
    assert plain["error"] == "" and {each["end"] for each in plain["engines"].values()} == {"exit"}
    assert plain["notifications"] == [
        ["RECONFIGURE_FINISHED", 0],
        ["RECONFIGURE_FINISHED", 0],
        ["SHUTDOWN_COMPLETE", 2],
    ]
    for mode in ("off", "observe", "guard"):
        for number in range(RUNS):
            assert runs.outcome(f"{mode}-{number}") == plain, f"{mode} {number}"


def test_off_leaves_no_journal(runs: Runs) -> None:
    assert not runs.journals("off-0").exists()


@pytest.mark.parametrize("mode", ["observe", "guard"])
def test_every_journal_is_a_run_that_the_spec_allows_alike_on_all_ranks(runs: Runs, mode: str) -> None:
    for number in range(RUNS):
        found = validate(runs.journals(f"{mode}-{number}"))
        assert [str(one) for one in found] == []
        assert sorted(read(runs.journals(f"{mode}-{number}"))) == ["engine0", "engine1", "engine2"]


def test_journals_whose_collectives_differ_between_ranks_are_found(runs: Runs, tmp_path: Path) -> None:
    for engine in ("engine0", "engine1", "engine2"):
        lines = (runs.journals("guard-0") / f"{engine}.jsonl").read_text()
        if engine == "engine2":
            lines = lines.replace("all_reduce.min", "all_reduce.sum")
        (tmp_path / f"{engine}.jsonl").write_text(lines)
    assert any("all_reduce.min" in str(one) and "engine2" in str(one) for one in validate(tmp_path))


def test_engines_with_different_tables_are_found(runs: Runs, tmp_path: Path) -> None:
    for engine in ("engine0", "engine1", "engine2"):
        lines = (runs.journals("guard-0") / f"{engine}.jsonl").read_text()
        changed = lines.replace('"digest": "', '"digest": "x') if engine == "engine1" else lines
        (tmp_path / f"{engine}.jsonl").write_text(changed)
    assert any("has table x" in str(one) for one in validate(tmp_path))


@pytest.mark.parametrize(("name", "inverted"), [("inverted-guard", (0, 1)), ("inverted-one-guard", (1,))])
def test_an_inverted_commit_is_refused_at_once_and_before_it_is_issued(
    runs: Runs, name: str, inverted: tuple[int, ...]
) -> None:
    result = runs.results[name]
    for rank in inverted:
        engine = result["engines"][str(rank)]
        assert engine["end"] == "Refused" and "groups.destroy on retired" in engine["error"]
        assert "commit_scale_up" not in engine["verbs"], "it was not issued"
        assert engine["cpu"] < 0.05
    assert any("refused rpc.commit_scale_up" in str(one) for one in validate(runs.journals(name)))


def test_an_inverted_commit_hangs_without_a_guard_and_the_journal_says_why(runs: Runs) -> None:
    for name in ("inverted-off", "inverted-observe"):
        ends = [engine["end"] for engine in runs.results[name]["engines"].values()]
        assert "Refused" not in ends and "RuntimeError" in ends, "gloo's timeout"
    events = read(runs.journals("inverted-observe"))["engine0"]
    assert [event["got"] for event in events if event["event"] == "refused"] == ["rpc.commit_scale_up"]


def test_explain_names_the_engine_that_was_stopped(runs: Runs) -> None:
    assert runs.results["stopped"]["error"] == "stalled"
    explanation = explain(runs.journals("stopped"))
    assert explanation.blamed == ("engine1",)
    assert {wait.engine: wait.missing for wait in explanation.waits if wait.missing} == {
        "engine0": ("engine1",),
        "engine2": ("engine1",),
    }
    assert "all_reduce.max on dp.active" in text(explanation)


@pytest.mark.parametrize("name", ["driven-one", "driven-all"])
def test_our_machine_in_the_place_of_theirs_gives_the_same_results(runs: Runs, name: str) -> None:
    assert runs.outcome(name) == runs.outcome("off-0")


@pytest.mark.parametrize("what", SABOTAGES)
def test_a_fault_of_the_observer_changes_nothing_for_vllm(runs: Runs, what: str) -> None:
    assert runs.outcome(f"sabotage-{what}") == runs.outcome("off-0")
