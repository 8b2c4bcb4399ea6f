"""What may go wrong, and what must not follow from it."""

from __future__ import annotations

import os
from typing import Any

import pytest

from elasticfsm.check.engine import explored
from elasticfsm.check.liveness import blocked, stranded
from elasticfsm.check.rules import explore_rule, load_rules, program_of
from elasticfsm.check.switch import PAGE, kept, recorded, text
from elasticfsm.check.verdict import run
from elasticfsm.check.world import Regime, World, faulty, sizes_of
from elasticfsm.compile import Program, compile_protocol
from elasticfsm.errors import SpecError
from elasticfsm.protocol import load
from elasticfsm.steps import SPEC

from .differential import composed

deep = pytest.mark.skipif(not os.environ.get("ELASTICFSM_DEEP"), reason="make check-deep")
CHEAP = 20_000  # states of a cell of the table that `make test` explores again
REGIMES = (
    Regime(expiry="arbitrary"),
    Regime(expiry="arbitrary", crashes=1),
    Regime(expiry="arbitrary", losses=1, duplicates=1),
    Regime(expiry="arbitrary", failures=1),
    Regime(crashes=1),
)
BASE = "variants/switch/base"
RULES = load_rules()


def small() -> Program:
    """The switch alone: gate, vote, join, confirm."""
    return compile_protocol(load(BASE))


def over_abstract(name: str) -> Program:
    """A shipped protocol over a serving loop and a rebalance without what the question of faults does not need."""
    parts = [load("abstract/busy"), load("abstract/still")]
    return compile_protocol(load(name), {part.name: part for part in parts})


def judged(program: Program, sizes: str, regime: Regime, **how: Any) -> tuple[Any, ...]:
    """What two explorers must agree on."""
    graph = explored(World(program, sizes_of(program, sizes), regime), **how)
    lost = stranded(graph)
    return set(graph.refuted), lost is None, blocked(graph) is None, len(graph.good) > 0


@pytest.fixture
def explored_scale() -> Any:
    """Explores a shipped protocol after an edit, at 1+1, where one step fails."""

    def explore(name: str, edit: dict[str, Any], engine: str) -> Any:
        whole = composed(name, edit, over=("abstract/busy", "abstract/still"))
        return run(whole, sizes_of(whole, "1+1"), Regime(expiry="arbitrary", failures=1), engine=engine)

    return explore


@pytest.mark.parametrize("regime", REGIMES, ids=str)
def test_plain_and_vector_reach_the_same_states_when_something_goes_wrong(regime: Regime) -> None:
    program = small()
    plain, vector = (
        explored(World(program, sizes_of(program, "1+1"), regime), engine=engine) for engine in ("plain", "vector")
    )
    assert len(plain.states) == len(vector.states)
    assert set(plain.refuted) == set(vector.refuted)
    assert len(plain.good) == len(vector.good)
    assert (stranded(plain) is None) == (stranded(vector) is None)


@pytest.mark.parametrize("rule", ["confirm", "final", "confirm_impatient", "each_itself"])
@pytest.mark.parametrize("regime", REGIMES[:3], ids=str)
def test_reductions_hide_nothing_that_goes_wrong(rule: str, regime: Regime) -> None:
    program = program_of(rule, *RULES)
    assert judged(program, "1+1", regime) == judged(program, "1+1", regime, reduced=False)


ONE = Regime(expiry="arbitrary", crashes=1)
EACH = (  # what a shipped protocol survives at 1+1
    ONE._replace(restart=True),
    ONE._replace(losses=1, duplicates=1),
    Regime(expiry="arbitrary", failures=1),
)


def holds(name: str, sizes: str, regime: Regime, engine: str = "auto") -> int:
    """Explores a shipped protocol to the end, which must refute nothing; returns the number of states."""
    program = over_abstract(name)
    found = run(program, sizes_of(program, sizes), regime, engine=engine)
    assert found.complete
    assert not found.refuted
    return found.states


@pytest.mark.parametrize("name", ["scale_up", "scale_down"])
@pytest.mark.parametrize("regime", EACH, ids=str)
def test_shipped_protocols_survive_what_may_go_wrong_at_any_moment(name: str, regime: Regime) -> None:
    assert holds(name, "1+1", regime, "vector") > 40_000


@deep
@pytest.mark.parametrize(
    ("name", "sizes"), [("scale_up", "1+2"), ("scale_up", "2+1"), ("scale_down", "1+2"), ("scale_down", "2+1")]
)
def test_shipped_protocols_of_three_engines_survive_one_death(name: str, sizes: str) -> None:
    assert holds(name, sizes, ONE, "vector") > 800_000


@pytest.mark.parametrize("engine", ["plain", "vector"])
def test_a_cleanup_that_fails_after_the_switch_must_not_end_an_engine(explored_scale: Any, engine: str) -> None:
    found = explored_scale("scale_up", {"at": "existing.retiring", "leave": {"failed": "failed"}}, engine)
    assert "service_kept" in found.refuted


def test_a_failed_launch_may_have_launched_none_some_or_all() -> None:
    program = over_abstract("scale_up")
    world = World(program, sizes_of(program, "1+2"), Regime(failures=1, expiry="arbitrary"))
    graph = explored(world, engine="plain", limit=3_000)
    told = {move.text for move in graph.successors.moves() if move.text.startswith("engines.launch: new failed")}
    assert len(told) == 3


def test_what_may_be_older_than_a_message_from_inside_is_noted_while_both_are_there() -> None:
    program = over_abstract("scale_down")
    graph = explored(World(program, sizes_of(program, "1+1"), ONE), engine="plain", limit=20_000)
    world = graph.world
    noted = [local for local in world.locals if local.older]
    assert noted
    assert all(local.inbox & world.within[local.role] and not local.older & ~local.inbox for local in noted)


def test_the_page_about_the_switch_is_what_was_explored() -> None:
    assert (SPEC.resolve().parent / PAGE).read_text() == text(recorded())


def test_every_rule_stands_on_the_page() -> None:
    assert {one.rule for one in recorded()} == set(RULES[0])


@pytest.mark.parametrize(
    "cell", [one for one in recorded() if one.states <= CHEAP], ids=lambda one: f"{one.rule}-{one.crashes}"
)
def test_a_rule_is_judged_as_on_the_page(cell: Any) -> None:
    assert kept(explore_rule(cell.rule, *RULES, cell.crashes)) == cell


@deep
@pytest.mark.parametrize(
    "cell", [one for one in recorded() if one.states > CHEAP], ids=lambda one: f"{one.rule}-{one.crashes}"
)
def test_a_rule_with_many_states_is_judged_as_on_the_page(cell: Any) -> None:
    found = kept(explore_rule(cell.rule, *RULES, cell.crashes, limit=3_000_000))
    assert (found.verdict, found.states) == (cell.verdict, cell.states)


def test_the_adopted_rule_holds_with_one_death_and_the_simpler_ones_do_not() -> None:
    verdicts = {(one.rule, one.crashes): one.verdict for one in recorded()}
    assert verdicts["confirm", 1] == verdicts["idle_peers", 1] == "holds"
    for refuted in ("bit", "question", "two_phase", "final", "tentative", "each_itself", "confirm_impatient"):
        assert verdicts[refuted, 1] != "holds"


def lines(edits: list[dict[str, Any]], explored: Any, name: str, regime: Regime) -> str:
    found = explored(*edits, of=BASE, regime=regime)
    return "\n".join(found.refuted[name].lines)


def test_a_sender_may_die_between_two_messages(explored: Any) -> None:
    """Who got `vote` waits in the join for one that never will: without a limit nobody gets out."""
    endless = [
        {"at": "existing.joining", "leave": {"expired": "joining"}},
        {"at": "new.prepared", "leave": {"expired": "prepared"}},
    ]
    assert "good_end" in explored(*endless, of=BASE, regime=Regime(crashes=1, expiry="arbitrary")).refuted


def test_a_lost_answer_must_be_asked_for_again(explored: Any) -> None:
    deaf = {"at": "coordinator.ending", "leave": {"expired": "aborted"}}
    stuck = {"at": "coordinator.asking", "leave": {"expired": "failed"}}
    assert "good_end" in explored(stuck, of=BASE, regime=Regime(losses=1, expiry="arbitrary")).refuted
    assert "agreement" not in explored(deaf, of=BASE, regime=Regime(losses=1, expiry="arbitrary")).refuted


def test_a_dead_engine_ends_the_operation_but_not_silently() -> None:
    found = run(small(), {"existing": 1, "new": 1}, Regime(crashes=1))
    assert "good_end" in found.refuted, "without deadlines somebody waits for the dead coordinator for ever"


def test_who_goes_back_by_its_own_deadline_after_the_join_is_in_doubt(explored: Any) -> None:
    told = lines([{"at": "new.joining", "leave": {"expired": "undoing"}}], explored, "in_doubt", REGIMES[0])
    assert "expired -> undoing" in told


def test_a_coordinator_without_a_way_back_cannot_be_restarted() -> None:
    program = compile_protocol(load(SPEC.resolve().parent / "tests" / "core" / "check" / "grow.yaml"))
    found = run(program, {"existing": 1, "new": 1}, Regime(crashes=1, restart=True))
    assert found.complete and found.states > 1000  # `asking` is a phase of it, so it can
    with pytest.raises(SpecError, match="cannot be restarted"):
        run(
            compile_protocol(load("variants/kb05/merged")),
            {"remaining": 1, "removing": 1},
            Regime(crashes=1, restart=True),
        )


def test_what_the_command_line_asks_for_is_named() -> None:
    assert faulty(0, 0, 0, 0, "", False, False) is None
    assert str(faulty(1, 2, 0, 0, "", True, False)) == "1 crash, 2 losses, arbitrary deadlines, coordinator restarts"
    with pytest.raises(SpecError, match="deadlines `soon`"):
        faulty(1, 0, 0, 0, "soon", False, False)
