"""Pictures are made from the spec alone, byte for byte the same, and `draw --check` notices when they are stale."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from elasticfsm.cli import app
from elasticfsm.compile import program
from elasticfsm.draw import stale, texts
from elasticfsm.draw.path import main_path
from elasticfsm.draw.render import CannotDraw, digest, mark_of, require, svg
from elasticfsm.draw.scenario import Scenario
from elasticfsm.draw.style import LOOK, MEANS
from elasticfsm.protocol import load, shipped
from elasticfsm.steps import SPEC

ROOT = Path(__file__).parents[2]
MACHINES = [(name, role) for name in shipped() for role in load(name).machines]
needs_programs = pytest.mark.skipif(
    shutil.which("dot") is None or shutil.which("mscgen") is None, reason="dot and mscgen draw; they are not installed"
)


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return texts()


def plain(dot: str) -> str:
    """The words of a dot text: what stands between the tags of its labels."""
    return re.sub(r"<[^<>]*>", "\n", dot).replace("&gt;", ">").replace("&lt;", "<")


def test_two_runs_give_the_same_bytes(drawn: dict[str, str]) -> None:
    assert texts() == drawn


def test_the_committed_pictures_are_fresh() -> None:
    assert stale(ROOT / "diagrams") == []


@pytest.mark.parametrize(("name", "role"), MACHINES)
def test_every_state_step_message_and_guard_of_a_machine_is_in_its_picture(
    name: str, role: str, drawn: dict[str, str]
) -> None:
    words = plain(drawn[f"{name}_{role}.dot"])
    for state in load(name).machines[role].states.values():
        assert f"\n{state.name}\n" in words
        assert all(str(step) in words for step in state.steps)
        assert all(f"▸ {message}" in words for message in state.sends)
        assert all(str(way.guard) in words for way in state.leave)


@pytest.mark.parametrize(("name", "role"), MACHINES)
def test_every_state_is_in_the_index_with_what_leaves_it(name: str, role: str, drawn: dict[str, str]) -> None:
    section = drawn["README.md"].split(f"### {name}: {role}\n")[1].split("\n#")[0]
    for state in load(name).machines[role].states.values():
        row = next(line for line in section.splitlines() if line.startswith(f"| **{state.name}** |"))
        assert all(f"{way.guard} → {way.target}" in row for way in state.leave)


@pytest.mark.parametrize(("name", "role"), MACHINES)
def test_a_shared_exit_is_drawn_once_for_its_phase(name: str, role: str, drawn: dict[str, str]) -> None:
    machine = load(name).machines[role]
    shared = {(s.phase, w.target) for s in machine.states.values() for w in s.leave if w.shared}
    dotted = re.findall(r'"exits (\w+)":(\w+):e -> ', drawn[f"{name}_{role}.dot"])
    assert sorted(dotted) == sorted(pair for pair in shared if not machine.states[pair[1]].end)


def test_the_legend_explains_every_kind_of_state_that_occurs(drawn: dict[str, str]) -> None:
    words = plain(drawn["scale_down_removing.dot"])
    for kind in ("resting", "background", "foreground", "silent", "end"):
        assert MEANS[kind] in words  # type: ignore[index]
    assert "takes forward steps" in plain(drawn["serving_engine.dot"])
    assert "takes forward steps" not in words


def test_kinds_of_states_differ_by_their_outline_and_not_by_colour_alone() -> None:
    outlines = [(look["style"], look["penwidth"], look.get("peripheries", "1")) for look in LOOK.values()]
    assert len(set(outlines)) == len(outlines)


@pytest.mark.parametrize("name", ["scale_up", "scale_down"])
def test_the_chart_walks_every_role_to_its_end(name: str) -> None:
    scenario = Scenario(program(name))
    scenario.run()
    assert {player.role: player.states[player.at] for player in scenario.players.values()} == dict.fromkeys(
        load(name).machines, "done"
    )


def test_the_chart_of_scale_up_has_the_switch_in_order() -> None:
    rows = [event.text for event in Scenario(program("scale_up")).run()]
    order = ["vote", "agreed drain", "agreed switch", "groups.join: standby", "step.confirm: active → all", "retire"]
    assert [row for row in rows if row in order and row != "vote"] == [*order[1:], "retire"]
    assert rows.index("vote") < rows.index("agreed drain")


def test_the_main_path_of_the_coordinator_is_the_one_that_commits() -> None:
    path = [name for name, _ in main_path(load("scale_down").machines["coordinator"])]
    assert path[0] == "planning"
    assert "asking" not in path
    assert path[-1] == "closing"


def test_both_charts_have_the_same_messages(drawn: dict[str, str]) -> None:
    arrows_msc = re.findall(r'(c\d)=>(c\d) \[label="(\w+)"', drawn["scale_up.msc"])
    arrows_mermaid = re.findall(r"(c\d)->>(c\d): (\w+)", drawn["scale_up.mmd"])
    assert arrows_msc == arrows_mermaid
    assert len(arrows_msc) > 10


def test_the_picture_of_an_engine_has_its_threads_groups_and_device_queue(drawn: dict[str, str]) -> None:
    words = plain(drawn["engine.dot"])
    for word in ("main loop", "background thread", "EPLB worker", "control thread", "standby", "device queue"):
        assert f"\n{word}\n" in words
    for step in ("step.forward: active", "groups.create: standby", "experts.fence: active"):
        assert step in words


def fresh(folder: Path, specs: list[str]) -> Path:
    """A folder as `draw` would write it, without needing the programs that draw."""
    for name, text in texts(specs).items():
        (folder / name).write_text(text)
        if name.endswith((".dot", ".msc")):
            (folder / name).with_suffix(".svg").write_text(f"<!-- source sha256 {digest(text)} -->\n<svg/>")
    return folder


def test_check_fails_when_a_spec_was_edited_and_names_the_files(tmp_path: Path) -> None:
    spec = tmp_path / "serving.yaml"
    spec.write_text((SPEC / "serving.yaml").read_text())
    out = tmp_path / "diagrams"
    out.mkdir()
    fresh(out, [str(spec)])
    command = ["draw", str(spec), "--out", str(out), "--check"]
    assert CliRunner().invoke(app, command).exit_code == 0
    spec.write_text(spec.read_text().replace("waking", "rousing"))
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 1
    for name in ("serving_engine.dot", "serving_engine.svg", "README.md"):
        assert str(out / name) in result.output
    assert "run `elasticfsm draw`" in result.output


def test_check_notices_a_picture_made_from_another_text(tmp_path: Path) -> None:
    fresh(tmp_path, ["serving"])
    (tmp_path / "serving.svg").write_text(f"<!-- source sha256 {digest('other')} -->\n<svg/>")
    assert stale(tmp_path, ["serving"]) == [f"{tmp_path / 'serving.svg'}: was drawn from another text"]


def test_check_notices_a_picture_that_belongs_to_no_protocol(tmp_path: Path) -> None:
    fresh(tmp_path, shipped())
    (tmp_path / "gone.svg").write_text("<svg/>")
    assert stale(tmp_path) == [f"{tmp_path / 'gone.svg'}: belongs to no protocol; remove it"]


def test_check_needs_no_program_that_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fresh(tmp_path, ["serving"])
    monkeypatch.setenv("PATH", "")
    assert stale(tmp_path, ["serving"]) == []


def test_drawing_without_the_programs_says_in_one_line_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        CannotDraw, match=r"^drawing needs `dot` and `mscgen`: apt-get install graphviz mscgen"
    ) as error:
        require(["a.dot", "b.msc", "c.mmd"])
    assert error.value.exit_code == 2
    assert "\n" not in str(error.value)


@needs_programs
@pytest.mark.parametrize("name", ["serving_engine.dot", "serving.msc"])
def test_an_svg_carries_the_hash_of_its_text(name: str, drawn: dict[str, str]) -> None:
    assert mark_of(svg(name, drawn[name])) == digest(drawn[name])
