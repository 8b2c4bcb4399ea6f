"""Names, numbers and limits of generations, in one process with groups of one."""

import threading

import pytest

from elasticfsm.errors import DeadlineExpired, GroupError, RequestRefused
from elasticfsm.runtime.groups import Groups, Limits


@pytest.fixture
def groups(store):
    groups = Groups(store.address, limits=Limits(connect=5))
    _create(groups, "active", 1)
    yield groups
    assert groups.close_all() == []


def _create(groups, name, number):
    groups.plan(f"op{number}", number, ["e0"], "e0")
    groups.create(name)


def _labels(groups):
    return {generation.number: {group.label for group in generation.groups} for generation in groups.alive()}


def _named(name):
    return {f"{kind}.{name}" for kind in ("world", "dp", "ep", "eplb")}


def test_a_switch_and_its_reversal_rename_the_groups_and_nothing_else(groups):
    _create(groups, "standby", 2)
    old, new = groups.active, groups.standby
    assert _labels(groups) == {1: _named("active"), 2: _named("standby")}
    groups.switch()
    assert (groups.retired, groups.active, groups.standby) == (old, new, None)
    assert _labels(groups) == {1: _named("retired"), 2: _named("active")}
    groups.revert()
    assert (groups.retired, groups.active, groups.standby) == (None, old, new)
    assert _labels(groups) == {1: _named("active"), 2: _named("standby")}
    old.dp.barrier()
    new.dp.barrier()


def test_a_new_generation_waits_until_the_retired_one_is_gone(groups):
    _create(groups, "standby", 2)
    groups.switch()
    thread = threading.Thread(target=_create, args=(groups, "standby", 3))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    groups.destroy("retired")
    thread.join(10)
    assert groups.need("standby").number == 3


def test_a_retired_generation_that_stays_is_an_error_at_the_deadline(groups):
    _create(groups, "standby", 2)
    groups.switch()
    groups.limits = Limits(arrive=0.05)
    with pytest.raises(DeadlineExpired, match="waits for the retired generation"):
        _create(groups, "standby", 3)


def test_a_generation_is_not_created_over_another(groups):
    with pytest.raises(RequestRefused, match="active exists already"):
        _create(groups, "active", 2)


def test_a_switch_without_a_standby_is_refused_and_changes_nothing(groups):
    with pytest.raises(GroupError, match="active is 1, standby is none"):
        groups.switch()
    with pytest.raises(GroupError, match="cannot revert"):
        groups.revert()
    assert groups.need("active").number == 1


@pytest.mark.parametrize(
    ("operation", "members", "me", "text"),
    [("op", ["a", "b"], "c", "not among"), ("op", ["a", "a"], "a", "twice"), ("o/p", ["a"], "a", "operation id")],
)
def test_an_impossible_plan_is_refused(groups, operation, members, me, text):
    with pytest.raises(RequestRefused, match=text):
        groups.plan(operation, 2, members, me)
