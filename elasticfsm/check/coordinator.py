"""What the coordinator can do next: a process of its own that looks at what engines have sent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from elasticfsm.check.move import ENVIRONMENT, EXPIRED, FAULT, REFUSAL, Edge
from elasticfsm.check.tables import StateTable, StepTable, WayTable
from elasticfsm.check.world import ABORTED, ANSWERED, DONE, FAILED, FAILURE, Boss, Stand, World, ended, ends_from


@dataclass(frozen=True, slots=True)
class BossMove:
    """One possible move of the coordinator.

    `look` says which of `sources` (role, outbox bit) must have arrived: "any", "all", "all alive", or "received", which
    takes one. `orders` are (role, inbox bits) that it sends; `launches` a role whose processes it starts, so many
    `stillborn`.
    """

    text: str
    target: Boss
    tag: int = 0
    edges: tuple[Edge, ...] = ()
    orders: tuple[tuple[str, int], ...] = ()
    look: str = ""
    sources: tuple[tuple[str, int], ...] = ()
    launches: str = ""
    stillborn: int = 0
    cost: int = -1
    bad: tuple[str, ...] = ()


def boss_moves(world: World, boss: Boss) -> list[BossMove]:
    """All moves of the coordinator in this state."""
    table = world.tables.coordinator
    if table is None or boss.stand is None:
        return []
    state = table.states[boss.stand.state]
    if not ended(state, boss.stand):
        return list(_run(world, boss, boss.stand, state, state.steps[boss.stand.step]))
    return [move for way in state.leave for move in _ways(world, boss, boss.stand, state, way)]


def _run(world: World, boss: Boss, stand: Stand, state: StateTable, step: StepTable) -> Iterator[BossMove]:
    """Its steps run inline, one after the other; every answer is explored, all but the first count as refusals."""
    if world.regime.failures and not step.answers:
        failed = boss._replace(stand=stand._replace(outcome=FAILED))
        yield from _failed(world, step, failed)
    for answer in _answers(boss, step):
        outcome = world.outcome(answer) if answer else stand.outcome
        facts = boss.facts & ~step.ends | step.provides
        after = boss._replace(stand=stand._replace(step=stand.step + 1, outcome=outcome), facts=facts)
        if step.journal == "write" and world.regime.faults:
            after = after._replace(journal=boss.journal | decides(world, stand.state))
        yield BossMove(
            text=f"{step.text} = {answer}" if answer else step.text,
            target=after,
            tag=REFUSAL if step.answers and not step.journal and answer != step.answers[0] else 0,
            launches=step.argument if step.means == "launch" else "",
            bad=world.tables.facts.refuted_by(step.requires & ~boss.facts),
        )


def _failed(world: World, step: StepTable, failed: Boss) -> Iterator[BossMove]:
    """Engines whose launch failed are expected all the same: any of them may be there, and the others count as dead."""
    role = step.argument if step.means == "launch" else ""
    for stillborn in range(len(world.where.get(role, ())) + 1):
        told = f"{step.text} failed" + (f", {stillborn} never lived" if stillborn else "")
        yield BossMove(told, failed, tag=FAULT, cost=FAILURE, launches=role, stillborn=stillborn)


def _answers(boss: Boss, step: StepTable) -> tuple[str, ...]:
    """What a step may say: one that reads the journal tells whether a decision was written."""
    if step.journal == "read":
        undecided, committed, aborted = step.answers
        return (committed if boss.journal & DONE else aborted if boss.journal & ABORTED else undecided,)
    return step.answers or ("",)


def decides(world: World, state: int) -> int:
    """The decision that is written in a state of the coordinator: the end that is left, if one is."""
    table = world.tables.coordinator
    left = ends_from(table, state) if table else frozenset()
    return {frozenset({"done"}): DONE, frozenset({"aborted"}): ABORTED}.get(left, 0)


def _ways(world: World, boss: Boss, stand: Stand, state: StateTable, way: WayTable) -> Iterator[BossMove]:
    if way.kind in ("done", "answer", "failed"):
        if _concluded(world, stand, state, way):
            yield _go(world, boss, way)
    elif way.kind == "expired":
        if world.regime.expiry != "off":
            yield _go(world, boss, way, tag=EXPIRED)
    elif way.outside == "operator" and way.name in (start[3] for start in _starts(world)):
        if world.regime.again and not boss.asked_again:
            again = _go(world, boss._replace(asked_again=True), way, tag=ENVIRONMENT)
            yield again if way.target == stand.state else replace(again, bad=("one_operation",))
    elif way.outside == "operator":
        if world.regime.cancel and not boss.cancelled:
            yield _go(world, boss._replace(cancelled=True), way, tag=ENVIRONMENT)
    elif way.sources:
        yield _go(world, boss, way, look=way.kind, sources=way.sources)
    if way.outside == "earlier":
        yield replace(_go(world, boss, way, tag=ENVIRONMENT), bad=("exactly_once",))


def _starts(world: World) -> tuple[tuple[tuple[int, ...], int, int, str], ...]:
    return world.tables.coordinator.starts if world.tables.coordinator else ()


def _concluded(world: World, stand: Stand, state: StateTable, way: WayTable) -> bool:
    if stand.outcome == FAILED:
        return way.kind == "failed"
    answer = world.answers[stand.outcome - ANSWERED] if stand.outcome >= ANSWERED else ""
    listed = any(other.kind == "answer" and other.name == answer for other in state.leave)
    return way.kind == "done" if not listed else way.kind == "answer" and way.name == answer


def _go(
    world: World, boss: Boss, way: WayTable, tag: int = 0, look: str = "", sources: tuple[tuple[str, int], ...] = ()
) -> BossMove:
    table = world.tables.coordinator
    states = table.states if table else ()
    target = states[way.target]
    return BossMove(
        text=f"{way.kind} {way.name}".strip() + f" -> {target.name}",
        target=boss._replace(stand=Stand(way.target)),
        tag=tag,
        edges=(way.key,),
        orders=target.orders,
        look=look,
        sources=sources,
    )
