"""What one engine can do next, from its local state alone; what depends on others is left open in a move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from elasticfsm.check.doubt import in_doubt
from elasticfsm.check.move import ENVIRONMENT, EXPIRED, FAULT, Edge, Move
from elasticfsm.check.tables import NEW, OLD, StateTable, StepTable, WayTable
from elasticfsm.check.world import (
    ANSWERED,
    ENTERED,
    FAILED,
    FAILURE,
    OUT,
    RELEASED,
    Local,
    Pending,
    Stand,
    World,
    begun,
    ended,
)


def moves_of(world: World, local: Local) -> list[Move]:
    """All moves of an engine in this local state; those of a machine that stands at its end are none."""
    if not local.present:
        return []
    boundary = at_boundary(world, local)
    found: list[Move] = []
    broken = _broken(world, local) if world.regime.faults else -1
    for machine, table in enumerate(world.machines[local.role]):
        stand = local.stands[machine]
        if stand is None:
            found.extend(_starts(world, local, machine) if (boundary and broken < 0) or table.worker else ())
            continue
        state = table.states[stand.state]
        if (boundary and broken in (-1, machine)) or table.worker:
            found.extend(_guards(world, local, machine, state, stand))
        if not ended(state, stand) and _may_run(world, local, machine, state, stand, boundary):
            found.extend(_step(world, local, machine, state.steps[stand.step], stand))
    return found


def _broken(world: World, local: Local) -> int:
    """The machine whose forward step has failed: that is told before any message or deadline is obeyed; else -1."""
    for machine, (table, stand) in enumerate(zip(world.machines[local.role], local.stands, strict=True)):
        if table.serving and stand is not None and stand.outcome == FAILED:
            return machine
    return -1


def at_boundary(world: World, local: Local) -> bool:
    """Whether the main loop is between two foreground lists."""
    for machine, stand in enumerate(local.stands):
        state = world.state_of(local, machine)
        if stand and state and state.thread == "foreground" and begun(stand) and not ended(state, stand):
            return False
    return True


def wants(world: World, local: Local) -> int:
    """The votes that the engine contributes: those that some machine stands waiting for."""
    votes = 0
    for machine in range(len(local.stands)):
        state = world.state_of(local, machine)
        votes |= state.votes if state else 0
    return votes


def _may_run(world: World, local: Local, machine: int, state: StateTable, stand: Stand, boundary: bool) -> bool:
    if state.thread != "foreground" or begun(stand):
        return True
    if not boundary:
        return False
    if not world.machines[local.role][machine].serving:
        return True
    others = (world.state_of(local, other) for other in range(len(local.stands)) if other != machine)
    return not any(other and not other.end and (other.thread == "foreground" or not other.serves) for other in others)


def _starts(world: World, local: Local, machine: int) -> Iterator[Move]:
    table = world.machines[local.role][machine]
    for mail, peer, target, message in table.starts:
        for bit in mail:
            if local.inbox & bit:
                after, peers = enter_state(world, local._replace(inbox=local.inbox & ~bit), machine, target)
                edge = (table.name, "", f"starts {message}")
                text = f"received {message} -> {table.states[target].name}"
                yield Move(machine, "guard", text, after, edges=(edge,), peers=peers)
        if peer >= 0:
            after, peers = enter_state(world, local, machine, target)
            yield Move(machine, "guard", f"received {message}", after, peers=peers, takes=peer)


def _guards(world: World, local: Local, machine: int, state: StateTable, stand: Stand) -> Iterator[Move]:
    """The ways out of a state; where something may go wrong, in the order of the interpreter (`machine.select`).

    A message from inside the engine is there at once: of the guards behind it only that of an older message is taken.
    """
    done, passed = ended(state, stand), False
    here = _within(world, local, state) if world.regime.faults else 0
    for way in state.leave:
        if way.kind in ("done", "failed", "answer"):
            if done and not passed and _concluded(world, state, stand, way):
                yield _leave(world, local, machine, way)
        elif way.kind == "expired":
            if world.regime.expiry != "off" and not passed:
                yield _leave(world, local, machine, way, tag=EXPIRED)
        elif way.kind in ("wanted", "unwanted"):
            if bool(wants(world, local)) == (way.kind == "wanted") and not passed:
                yield _leave(world, local, machine, way)
        elif way.kind != "agreed":
            yield from _mail(world, local, machine, way, here)
            passed = passed or any(bit & here for bit in way.mail)


def _within(world: World, local: Local, state: StateTable) -> int:
    """The messages from inside the engine that a state listens to and that are there."""
    listed = sum({bit for way in state.leave for bit in way.mail})
    return listed & local.inbox & world.tables.inner


def _concluded(world: World, state: StateTable, stand: Stand, way: WayTable) -> bool:
    """Whether a list that has ended so is left this way; the guard of an answer wins over `done`."""
    if stand.outcome == FAILED:
        return way.kind == "failed"
    answer = world.answers[stand.outcome - ANSWERED] if stand.outcome >= ANSWERED else ""
    listed = any(other.kind == "answer" and other.name == answer for other in state.leave)
    return way.kind == "done" if not listed else way.kind == "answer" and way.name == answer


def _mail(world: World, local: Local, machine: int, way: WayTable, within: int) -> Iterator[Move]:
    """Messages that may be taken now; if some came from inside the engine, only these and older ones."""
    if way.outside == "environment" and not within:
        yield _leave(world, local, machine, way, tag=ENVIRONMENT)
    if way.outside == "earlier" and not within:
        yield replace(_leave(world, local, machine, way, tag=ENVIRONMENT), bad=("exactly_once",))
    there = local.inbox & (within | local.older) if within else local.inbox
    for bit in way.mail:
        if there & bit:
            kept = local if way.kind != "received" else local._replace(inbox=local.inbox & ~bit)
            yield _leave(world, kept, machine, way)
    if way.peer >= 0:
        yield replace(_leave(world, local, machine, way), takes=way.peer)


def _leave(world: World, local: Local, machine: int, way: WayTable, tag: int = 0) -> Move:
    after, peers = enter_state(world, local, machine, way.target)
    target = world.machines[local.role][machine].states[way.target].name
    return Move(
        machine,
        "guard",
        f"{way.kind} {way.name}".strip() + f" -> {target}",
        after,
        ("in_doubt",) if in_doubt(world, local, machine, way) else (),
        tag=tag,
        edges=(way.key,),
        peers=peers,
    )


def enter_state(world: World, local: Local, machine: int, target: int) -> tuple[Local, tuple[int, ...]]:
    """The local state after a machine entered a state, and what it sends to its peers; a running list is cancelled."""
    table = world.machines[local.role][machine]
    state = table.states[target]
    stand = local.stands[machine]
    if stand is not None and stand.inside == ENTERED:
        local = _abandoned(world, local, machine)
    gone = state.end and not (world.operation and machine == 0)
    after = local._replace(
        stands=_put(local.stands, machine, None if gone else Stand(target)),
        inbox=local.inbox | state.inbox,
        outbox=local.outbox | state.outbox,
        older=local.older | _may_be_older(world, local, machine, state),
    )
    if world.regime.faults and state.end and not gone and state.name not in ("done", "aborted"):
        for generation in (OLD, NEW):  # the engine reports it and stops: whoever waits for it notices
            after = closed(after, generation, broken=True)
    return after, state.peers


def _may_be_older(world: World, local: Local, machine: int, entered: StateTable) -> int:
    """The coordinator's messages that may have come before one which is sent to the operation's machine just now.

    A forward step that broke is told at once, and before it began that machine had taken all that it listens to.
    """
    if not world.regime.faults or machine == 0 or not entered.inbox & ~local.inbox & world.within[local.role]:
        return 0
    stand, state = local.stands[machine], world.state_of(local, 0)
    broke = stand is not None and stand.outcome == FAILED and world.machines[local.role][machine].serving
    listed = sum({bit for way in state.leave for bit in way.mail}) if state is not None and broke else 0
    return local.inbox & world.orders & ~listed


def _abandoned(world: World, local: Local, machine: int) -> Local:
    """A thread left a collective before it was released: this side of the group is closed."""
    step = world.step_of(local, machine)
    generation = world.tables.resolve(world.tables.roles[local.role], local.switched, step.group) if step else None
    return local if generation is None else closed(local, generation, broken=world.regime.faults)


def closed(local: Local, generation: int, broken: bool = False) -> Local:
    """The local state after this side of a generation was closed; `broken`: not by a step that ends it on purpose."""
    bits = 1 << generation | (1 << generation + 2 if broken else 0)
    return local._replace(
        closed=local.closed | bits,
        pending=tuple(entry for entry in local.pending if entry.generation != generation),
    )


def _put(stands: tuple[Stand | None, ...], machine: int, stand: Stand | None) -> tuple[Stand | None, ...]:
    return (*stands[:machine], stand, *stands[machine + 1 :])


def _step(world: World, local: Local, machine: int, step: StepTable, stand: Stand) -> Iterator[Move]:
    generation = (
        world.tables.resolve(world.tables.roles[local.role], local.switched, step.group) if step.group else None
    )
    if stand.inside >= RELEASED:
        yield _return(world, local, machine, step, stand)
    if stand.inside == ENTERED or (stand.inside >= RELEASED and world.regime.faults):
        # A collective is not atomic: where a member closed its side it may return at one member and fail at another.
        yield _failure(local, machine, step, cut=int(generation or 0))
        yield from _overdue(world, local, machine, step, generation)
    elif stand.inside >= RELEASED:
        return
    elif step.kind >= 0 and generation is None:
        yield replace(_failure(local, machine, step), bad=("membership",))
    else:
        bad = world.tables.facts.refuted_by(step.requires & ~local.facts)
        yield from _begin(world, local, machine, step, generation, bad)


def _failure(local: Local, machine: int, step: StepTable, cut: int = -1) -> Move:
    stand = local.stands[machine]
    assert_stand = stand or Stand(0)
    failed = assert_stand._replace(inside=OUT, outcome=FAILED)
    after = local._replace(stands=_put(local.stands, machine, failed))
    if cut >= 0:
        after = closed(after, cut, broken=True)
    return Move(machine, "fail", f"{step.text} failed", after, cut=cut, harsh=step.group != "standby")


def _overdue(world: World, local: Local, machine: int, step: StepTable, generation: int | None) -> Iterator[Move]:
    """A collective of a standby group that holds up forward steps has the limit of its phase, if that has one.

    A list in the background is left by the guard `expired`; one of an active group ends when a member is gone.
    """
    state = world.state_of(local, machine)
    limited = state is not None and any(way.kind == "expired" for way in state.leave)
    held = limited and state is not None and state.thread == "foreground" and step.group == "standby"
    if world.regime.expiry != "off" and held and generation is not None:
        failed = _failure(local, machine, step)
        after = closed(failed.target, generation, broken=True)
        yield replace(failed, text=f"{step.text} expired", target=after, tag=EXPIRED)


def _begin(
    world: World, local: Local, machine: int, step: StepTable, generation: int | None, bad: tuple[str, ...]
) -> Iterator[Move]:
    stand = local.stands[machine] or Stand(0)
    if step.means in ("rendezvous", "agree", "post"):
        place = int(generation or 0)
        posted = step.means == "post"
        entry = Pending(place, step.kind, step.name, -1 if posted else machine)
        entered = local._replace(pending=local.pending if local.closed >> place & 1 else (*local.pending, entry))
        after = (
            _finished(entered, machine, step)
            if posted
            else entered._replace(stands=_put(local.stands, machine, stand._replace(inside=ENTERED)))
        )
        yield Move(
            machine, "enter", step.text, after, bad, enters=(place, step.kind, step), requires=step.requires_elsewhere
        )
    elif step.means == "wait":
        posts = [p for p in local.pending if p.machine == -1 and (p.generation, p.kind) == (generation, step.kind)]
        if posts or (generation is not None and local.closed >> generation & 1):
            yield _failure(local, machine, step, cut=int(generation or 0))
            yield from _overdue(world, local, machine, step, generation)
        if not posts:
            yield Move(machine, "step", step.text, _finished(local, machine, step), bad)
    elif step.means == "await":
        if not step.awaits & ~local.facts:
            after = _finished(local, machine, step)
            yield Move(machine, "step", step.text, after, bad, needs=step.awaits_elsewhere)
    else:
        yield from _local(world, local, machine, step, generation, bad)
    state = world.state_of(local, machine)
    if world.regime.failures and step.means in ("local", "await", "wait") and state and state.thread == "background":
        failed = _failure(local, machine, step)
        if step.means == "local":  # what it ends has ended with its begin
            target = failed.target._replace(facts=failed.target.facts & ~step.ends)
            ended_group = step.closes and generation is not None
            failed = replace(
                failed, target=closed(target, int(generation or 0), broken=True) if ended_group else target
            )
        yield replace(failed, cost=FAILURE, tag=FAULT)


def _local(
    world: World, local: Local, machine: int, step: StepTable, generation: int | None, bad: tuple[str, ...]
) -> Iterator[Move]:
    facts = world.tables.facts
    if step.means == "rename" and step.group == "retired":
        back = local._replace(facts=facts.reverted(local.facts), switched=False)
        yield Move(machine, "step", step.text, _finished(back, machine, step), bad)
    elif step.means == "rename":
        bad = tuple(sorted({*bad, *(("no_transfer_at_switch",) if _in_flight(world, local, machine) else ())}))
        moved = local._replace(facts=facts.switched(local.facts), switched=True)
        yield Move(machine, "step", step.text, _finished(moved, machine, step), bad)
    elif step.closes and generation is not None:
        pending = any(entry.generation == generation for entry in local.pending)
        if pending and step.group != "standby":
            bad = tuple(sorted({*bad, "no_use_after_destroy"}))
        after = closed(_finished(local, machine, step), generation)
        harmless = step.group == "standby" or local.closed >> generation + 2 & 1  # it was broken before
        yield Move(machine, "step", step.text, after, bad, closes=-1 if harmless else generation)
    else:
        for answer in step.answers or ("",):
            after = _finished(local, machine, step, world.outcome(answer) if answer else None)
            text = f"{step.text} = {answer}" if answer else step.text
            move = Move(machine, "step", text, after, bad, requires=step.requires_elsewhere)
            yield _looked(move, step, answer) if step.asks and step.answers else move


def _looked(move: Move, step: StepTable, answer: str) -> Move:
    """A local step that asks looks at once whether the fact holds on every engine of a role."""
    asked = ((step.argument, step.asks),)
    return replace(move, needs=asked) if answer == step.answers[0] else replace(move, lacks=asked)


def _in_flight(world: World, local: Local, machine: int) -> bool:
    """Whether another thread of this engine is inside a list of steps."""
    for other, stand in enumerate(local.stands):
        state = world.state_of(local, other)
        if other != machine and stand and state and state.thread == "background" and not ended(state, stand):
            return True
    return False


def _finished(local: Local, machine: int, step: StepTable, outcome: int | None = None) -> Local:
    """The local state after a step has ended well."""
    stand = local.stands[machine] or Stand(0)
    said = stand.outcome if outcome is None else outcome
    after = stand._replace(step=stand.step + 1, inside=OUT, outcome=said)
    return local._replace(stands=_put(local.stands, machine, after), facts=local.facts & ~step.ends | step.provides)


def _return(world: World, local: Local, machine: int, step: StepTable, stand: Stand) -> Move:
    """The engine leaves a collective that was released; votes that are full are acted on in the same moment."""
    result = world.results[stand.inside - RELEASED]
    after = _finished(local, machine, step, world.outcome(result.answer) if result.answer else None)
    text = f"{step.text} = {result.answer}" if result.answer else step.text
    if step.means != "agree":
        return Move(machine, "leave", text, after)
    edges: list[Edge] = []
    peers: tuple[int, ...] = ()
    for other in range(len(local.stands)):
        way = _agreed(world, local, other, result.votes)
        if other == machine:
            way = _answered(world, after, machine)
        if way is not None:
            after, more = enter_state(world, after, other, way.target)
            edges.append(way.key)
            peers += more
    agreed = [f"{guard}, {name}" for name, _, guard in edges if guard.startswith("agreed")]
    return Move(machine, "leave", ": ".join([text, *agreed]), after, edges=tuple(edges), peers=peers)


def _agreed(world: World, local: Local, machine: int, votes: int) -> WayTable | None:
    state = world.state_of(local, machine)
    for way in state.leave if state else ():
        if way.kind == "agreed" and world.tables.votes[way.name] & votes:
            return way
    return None


def _answered(world: World, local: Local, machine: int) -> WayTable | None:
    state, stand = world.state_of(local, machine), local.stands[machine]
    if state is None or stand is None or not ended(state, stand):
        return None
    ways = [way for way in state.leave if way.kind in ("done", "answer") and _concluded(world, state, stand, way)]
    return ways[0] if ways else None
