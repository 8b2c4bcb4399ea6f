"""Failure is contagious, a blocked thread can be freed, and a creation can be given up at any moment."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest
import torch

from elasticfsm.errors import DeadlineExpired, GroupCut, GroupError, Refused
from elasticfsm.runtime.census import census
from elasticfsm.runtime.creation import Creation, Plan
from elasticfsm.runtime.deadline import Deadline
from elasticfsm.runtime.gloo import GlooEndpoint
from elasticfsm.runtime.groups import Groups, Limits
from elasticfsm.runtime.reaper import Reaper
from elasticfsm.runtime.rehearsal import Rehearsal
from elasticfsm.runtime.store import StoreClient


def _active(store, members, me, **options):
    groups = Groups(store, **options)
    groups.plan("first", 1, members, me)
    groups.create("active")
    return groups


def _kind(error):
    return type(error).__name__


class Recorder:
    """A watch that refuses some operations and remembers all of them."""

    def __init__(self, refuse=()):
        self.refuse = refuse
        self.seen = []

    def before(self, group, op):
        self.seen.append(["before", group, op])
        if op in self.refuse:
            raise Refused(f"{op} on {group}")

    def after(self, group, op, error):
        self.seen.append(["after", group, op, error and _kind(error)])


# -- in the children -----------------------------------------------------------------------------------------------


def made_anew(link, store, members, me):
    """The first attempt is missed by e1, of which e0 hears at its deadline; at the second one they meet."""
    groups = _active(store, members, me)
    old, error = groups.active.eplb, None
    if me == "e0":
        try:
            groups.renew("active", "eplb", 1, 0.3)
        except GroupError as failure:
            error = failure
    kept = groups.active.eplb is old
    groups.renew("active", "eplb", 2, 5.0)
    number = torch.ones(1)
    for group in (groups.active.eplb, groups.active.dp, groups.active.world):
        group.all_reduce(number)
    report = {"error": str(error), "kind": _kind(error), "kept": kept, "old": old.alive, "sum": int(number)}
    return report | {"label": groups.active.eplb.label, "left": groups.close_all()}


def step_until_broken(link, store, members, me):
    groups = _active(store, members, me)
    group = groups.need("active").dp
    link.say("stepping")
    threading.Thread(target=_cut_when_told, args=(link, groups), daemon=True).start()
    started = time.monotonic()
    with pytest.raises(GroupError) as broken:
        while time.monotonic() < started + 20:
            group.all_reduce(torch.ones(4))
    with pytest.raises(GroupError) as again:
        group.all_reduce(torch.ones(4))
    return {"kind": _kind(broken.value), "again": _kind(again.value), "left": groups.close_all()}


def enter_or_stay_away(link, store, members, me, op):
    """Every rank but the last enters a collective; the last one is the peer that never comes."""
    groups = _active(store, members, me)
    group = groups.need("active").dp
    if me == members[-1]:
        link.say("away")
        return link.hear()
    threading.Thread(target=_cut_when_told, args=(link, groups), daemon=True).start()
    link.say("entering")
    t = torch.ones(4)
    with pytest.raises(GroupError) as freed:
        group.recv(t, group.size - 1) if op == "recv" else group.all_reduce(t)
    return {"kind": _kind(freed.value), "left": groups.close_all(), "census": census(groups).groups}


def _cut_when_told(link, groups):
    if link.hear(60) == "cut":
        groups.cut("active", "told by the control thread")


def expire(link, store, members, me, within):
    groups = _active(store, members, me)
    group = groups.need("active").dp
    if me == members[-1]:
        link.hear()
        with pytest.raises(GroupError) as error:
            group.all_reduce(torch.ones(1))
        return str(error.value)
    with pytest.raises(DeadlineExpired) as error:
        group.all_reduce(torch.ones(1), within=within)
    return str(error.value)


def watched(link, store, members, me):
    watch = Recorder(refuse=("broadcast",))
    groups = _active(store, members, me, watch=watch)
    group = groups.need("active").ep
    group.all_reduce(torch.ones(1))
    with pytest.raises(Refused):
        group.broadcast(torch.ones(1), 0)
    group.all_reduce(torch.ones(1))
    return watch.seen


def rehearse(link, store, members, me):
    groups = _active(store, members, me)
    rehearsal = Rehearsal(groups)
    if me == members[-1]:
        return link.hear()
    rehearsal.post("active")
    with pytest.raises(GroupCut) as error:
        rehearsal.wait("active", cancelled=lambda: True)  # the reduce_scatter behind it is left to the reaper
    return {"kind": _kind(error.value), "left": groups.close_all()}


def die_before_entering(link, store, members, me):
    if me == members[-1]:
        GlooEndpoint.connect = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
    groups = Groups(store, limits=Limits(connect=1))
    groups.plan("first", 1, members, me)
    with pytest.raises(GroupError) as error:
        groups.create("active")
    return {"kind": _kind(error.value), "left": groups.close_all()}


# -- the claims ----------------------------------------------------------------------------------------------------


def test_a_peer_killed_in_a_loop_of_collectives_fails_all_others(engines):
    *others, victim = engines(step_until_broken, 4)
    for engine in (*others, victim):
        assert engine.hear() == "stepping"
    victim.kill()
    for engine in others:
        result = engine.result(5)
        assert result == {"kind": "GroupError", "again": "GroupError", "left": []}


@pytest.mark.parametrize("op", ["all_reduce", "recv"])
def test_a_cut_frees_a_thread_that_waits_for_an_absent_peer(engines, op):
    waiting, away = engines(enter_or_stay_away, 2, op=op)
    assert (waiting.hear(), away.hear()) == ("entering", "away")
    waiting.say("cut")
    assert waiting.result(5) == {"kind": "GroupCut", "left": [], "census": 0}


def test_one_cut_frees_everybody_who_waits_in_the_same_collective(engines):
    first, second, away = engines(enter_or_stay_away, 3, op="all_reduce")
    for engine in (first, second, away):
        engine.hear()
    first.say("cut")
    assert first.result(5)["kind"] == "GroupCut"
    assert second.result(5)["kind"] == "GroupError"


@pytest.mark.parametrize("within", [0.3, 0.0005])  # torch takes less than a millisecond for "without end"
def test_an_expired_deadline_names_group_operation_rank_and_seconds_and_closes_the_group(engines, within):
    waiting, late = engines(expire, 2, within=within)
    text = waiting.result()
    for part in ("dp.active", "all_reduce", "rank 0 of 2", f"{within} s"):
        assert part in text
    late.say("now")
    assert "all_reduce on dp.active at rank 1 of 2 failed" in late.result()


def test_a_refused_collective_is_not_issued_and_the_group_stays_in_order(engines):
    for engine in engines(watched, 2):
        reduce = [["before", "ep.active", "all_reduce"], ["after", "ep.active", "all_reduce", None]]
        assert engine.result() == [*reduce, ["before", "ep.active", "broadcast"], *reduce]


def _creating(groups, cancelled=None):
    """Run create in a thread; returns (thread, list that gets its error)."""
    errors = []

    def run():
        try:
            groups.create("standby", cancelled)
        except GroupError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, errors


@pytest.mark.parametrize("how", ["event", "cancel"])
def test_a_creation_whose_peer_never_arrives_can_be_cancelled(store, how):
    groups, event = Groups(store.address), threading.Event()
    groups.plan("op", 1, ["here", "absent"], "here")
    thread, errors = _creating(groups, event)
    event.set() if how == "event" else groups.cancel()
    thread.join(1)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [GroupCut]
    assert groups.close_all() == []


def test_a_creation_can_be_cancelled_while_it_waits_inside_gloo(store, monkeypatch):
    entered = threading.Event()
    arrive = StoreClient.arrive

    def arrive_for_both(self, name, members, me, value, **options):
        self.set(f"{name}/absent", value.replace("127.0.0.1", "127.0.0.2"))
        found = arrive(self, name, members, me, value, **options)
        entered.set()
        return found

    monkeypatch.setattr(StoreClient, "arrive", arrive_for_both)
    groups = Groups(store.address, limits=Limits(connect=30))
    groups.plan("op", 1, ["here", "absent"], "here")
    thread, errors = _creating(groups)
    assert entered.wait(10)
    groups.cancel()
    thread.join(1)
    assert not thread.is_alive()
    assert [type(error) for error in errors] == [GroupCut]
    assert groups.close_all() == []


def _runloops():
    """Threads of this process that serve gloo groups, by the name that torch gives them."""
    return sum(each.read_text() == "pt_gloo_runloop\n" for each in Path("/proc/self/task").glob("*/comm"))


def test_what_formed_although_given_up_is_freed_while_somebody_keeps_the_error(store):
    before, reaper = _runloops(), Reaper()
    creation = Creation(Plan("op", 1, ("e0",), "e0", store.address), Limits(), "127.0.0.1", "gloo")
    assert creation._finished.wait(10)
    assert _runloops() > before
    with pytest.raises(GroupCut) as kept:
        creation.result(lambda: True, reaper)
    reaper.wait_empty(Deadline(10, "what is left"))
    assert kept.tb is not None
    assert creation._groups == []
    assert reaper.close(5) == []
    assert _runloops() == before


def test_an_absent_member_is_named_when_arrival_expires(store):
    groups = Groups(store.address, limits=Limits(arrive=0.2))
    groups.plan("op", 1, ["here", "absent"], "here")
    with pytest.raises(DeadlineExpired, match="absent: absent"):
        groups.create("standby")
    assert groups.close_all() == []


def test_a_member_that_dies_between_arrival_and_entering_does_not_hang_the_others(engines):
    *others, dying = engines(die_before_entering, 3)
    for engine in others:
        assert engine.result(10) == {"kind": "GroupError", "left": []}
    with pytest.raises(AssertionError):
        dying.result(1)


def test_a_rehearsal_without_a_peer_can_be_cancelled(engines):
    rehearsing, _ = engines(rehearse, 2)
    assert rehearsing.result(10) == {"kind": "GroupCut", "left": []}


def test_a_group_is_made_anew_by_all_its_members_and_who_missed_an_attempt_comes_to_the_next(engines):
    first, second = (child.result() for child in engines(made_anew, 2))
    assert first["kind"] == "DeadlineExpired" and "absent: e1" in first["error"]
    for report in (first, second):
        assert report["kept"] and not report["old"] and report["left"] == []
        assert (report["sum"], report["label"]) == (8, "eplb.active")
