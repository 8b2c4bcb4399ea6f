"""The dry run: its arithmetic, its course through the protocol, and what it refuses."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from elasticfsm import cli
from elasticfsm.errors import RequestRefused
from elasticfsm.runtime.demo.dry_run import foretell
from elasticfsm.runtime.deployment import Options
from elasticfsm.runtime.engine.config import ModelConfig
from elasticfsm.runtime.engine.weights import allocate_flat, non_expert_specs
from elasticfsm.runtime.experts.placement import Placement
from elasticfsm.runtime.forecast import Assumptions, predict
from elasticfsm.runtime.models import PSALTER

FIXED = Assumptions(bandwidth=1e9, step_seconds=0.01, collective_seconds=0.002, start_seconds=2.0)


@pytest.fixture
def config():
    return ModelConfig.read(PSALTER)


def forecast(config, before, after, **more):
    return predict(config, before, after, 10, assumptions=more.pop("assumptions", FIXED), **more)


def test_growing_gives_every_new_rank_the_weights_and_full_slots(config):
    import torch

    found = forecast(config, 2, 4)
    _, views = allocate_flat(non_expert_specs(config), torch.float32, torch.device("cpu"))
    whole = sum(view.numel() * 4 for view in views.values())
    row = 3 * config.hidden_size * config.moe_intermediate_size * 4
    new, old = found.ranks[2:], found.ranks[:2]
    assert [(rank.weights_received, rank.experts_received) for rank in new] == [(whole, 4 * 10 * row)] * 2
    assert [(rank.weights_received, rank.experts_received) for rank in old] == [(0, 0)] * 2
    assert sum(rank.weights_sent for rank in old) == 2 * whole
    assert sum(rank.experts_sent for rank in old) == 2 * 4 * 10 * row
    assert found.rows.moved == found.rows.moved_bound == 80
    assert found.preparing_seconds == pytest.approx(2.0 + whole / 1e9)
    assert (found.kv_tokens_before, found.kv_tokens_after) == (2 * 512 * 16, 4 * 512 * 16)


def test_by_p2p_one_source_serves_a_new_rank(config):
    found = forecast(config, 2, 3, assumptions=Assumptions(bandwidth=1e9, transfer="p2p"))
    assert found.ranks[0].weights_sent == found.ranks[2].weights_received and not found.ranks[1].weights_sent


def test_the_pause_counts_the_collectives_between_two_steps(config):
    # scale_up: share the placement, join, confirm. scale_down: share, join.
    assert forecast(config, 2, 4).pause_steps == pytest.approx(1 + 3 * 0.2)
    assert forecast(config, 4, 2).pause_steps == pytest.approx(1 + 2 * 0.2)


def test_the_course_is_the_way_of_success(config):
    for found in (forecast(config, 2, 4), forecast(config, 4, 2)):
        for role in found.roles:
            names = [station.state for station in role.stations]
            assert names[-1] == "done"
            assert not {"failed", "aborted", "undoing", "asking"} & set(names)
    assert [(role.role, role.engines) for role in found.roles] == [
        ("coordinator", 1),
        ("remaining", 2),
        ("removing", 2),
    ]


def test_shrinking_empties_the_ranks_asked_for_and_else_those_that_orphan_least(config):
    asked = forecast(config, 3, 2, leaving=[0])
    assert asked.leaving == [0] and all(change.after[0] == "-" for change in asked.placement)
    assert [rank.role for rank in asked.ranks] == ["removing", "remaining", "remaining"]
    rows = np.tile([[*range(10), *range(6, 16), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9]], (4, 1))
    free = forecast(config, 3, 2, placement=Placement(rows, 16, 10))
    assert free.rows.moved_bound == 0 and free.leaving == [2]


def test_the_predicted_loads_decide_where_experts_go(config):
    loads = np.ones((4, 16), dtype=np.int64)
    loads[:, 7] = 1000
    found = forecast(config, 2, 4, loads=loads)
    assert all("7" in held or "-" in held for change in found.placement for held in change.after)
    assert found.rows.balance > 0.9


def test_bandwidth_is_measured_when_not_given(config):
    found = forecast(config, 2, 3, assumptions=Assumptions())
    assert found.bandwidth_measured and found.bandwidth > 1e7


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ((0, 2), "size 0 is not a number of engines"),
        ((2, 0), "size 0 is not a number of engines"),
        ((2, 1), "size 1 is too small: 1 x 10 slots = 10 for 16 experts"),
        ((2, 2), "nothing will happen"),
    ],
)
def test_sizes_that_cannot_be_are_refused(config, change, text):
    with pytest.raises(RequestRefused, match=text):
        forecast(config, *change)


@pytest.mark.parametrize("leaving", [[3], [-1], [0, 1], [0, 0]])
def test_ranks_that_cannot_leave_are_refused(config, leaving):
    with pytest.raises(RequestRefused, match="expected 1 different ranks of 0 to 2"):
        forecast(config, 3, 2, leaving=leaving)
    with pytest.raises(RequestRefused, match="expected 0 different ranks"):
        forecast(config, 2, 3, leaving=[0])


# -- command line ----------------------------------------------------------------------------------------------


def command(monkeypatch, *words):
    monkeypatch.setattr(sys, "argv", ["elasticfsm", "plan", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_the_command_prints_the_plan_and_writes_it(monkeypatch, capsys, tmp_path):
    out = tmp_path / "plan.json"
    assert command(monkeypatch, "--from", 3, "--to", 2, "--remove", 1, "--slots", 8, "--json", out) == 0
    text = capsys.readouterr().out
    for word in ("scale_down", "leaving: rank 1", "experts.leave", "bytes per rank", "at least", "KV cache"):
        assert word in text
    assert json.loads(out.read_bytes())["leaving"] == [1]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--from", 0, "--to", 2), "size 0 is not a number of engines"),
        (("--from", 2, "--to", 4, "--slots", 3), "size 2 is too small: 2 x 3 slots = 6 for 16 experts"),
        (("--from", 2, "--to", 1), "valid sizes: 2 to 8"),
        (("--from", 2, "--to", 999), "size 999 is larger than allowed (8)"),
        (("--from", 9, "--to", 2), "size 9 is larger than allowed (8)"),
        (("--from", 2, "--to", 4, "--largest", 3), "size 4 is larger than allowed (3)"),
        (("--from", 3, "--to", 2, "--remove", "x"), "expected ranks with commas between"),
        (("--from", 2, "--to", 3, "--model", "/nowhere"), "/nowhere does not exist"),
        (("--from", 2, "--to", 3, "--transfer", "post"), "expected nixl or p2p"),
        (("--from", 2, "--to", 3, "--loads", "/nowhere"), "expected 4 lists of 16 counts"),
    ],
)
def test_bad_input_ends_with_two_and_one_clear_line(monkeypatch, capsys, words, text):
    assert command(monkeypatch, *words) == 2
    said = capsys.readouterr().err.strip()
    assert text in said and "\n" not in said


def test_a_model_without_config_is_named(monkeypatch, capsys, tmp_path):
    assert command(monkeypatch, "--from", 2, "--to", 3, "--model", tmp_path) == 2
    assert "config.json does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("content", ["[[1, 2]]", "[[-1]]", "{}", "nothing"])
def test_loads_of_another_shape_are_refused(monkeypatch, capsys, tmp_path, content):
    (tmp_path / "loads.json").write_text(content)
    assert command(monkeypatch, "--from", 2, "--to", 3, "--loads", tmp_path / "loads.json") == 2
    assert "expected" in capsys.readouterr().err


def test_a_running_deployment_predicts_with_what_its_own_start_took():
    def preparing(start_seconds):
        deployment = SimpleNamespace(
            config=ModelConfig.read(PSALTER),
            members=("e0", "e1"),
            leaving=lambda size: (),
            options=Options(slots=10),
            placement=None,
            start_seconds=start_seconds,
        )
        return foretell(deployment, [], 3).preparing_s

    assert 1.5 <= preparing(1.5) < 1.6
    assert 4.0 <= preparing(0.0) < 4.1  # it took engines over: it has not started them
