"""The step agreement: AND of votes, OR of work, and nobody meets a stranger unnoticed."""

import pytest

from elasticfsm.errors import GroupError
from elasticfsm.runtime.agree import StepAgreement
from elasticfsm.runtime.groups import Groups
from elasticfsm.runtime.identity import IdentityMismatch, operation_hash

VOTES = ("drain", "vote", "slot")


def _active(store, members, me):
    groups = Groups(store)
    groups.plan("first", 1, members, me)
    groups.create("active")
    return groups


def vote(link, store, members, me):
    group = _active(store, members, me).need("active").dp
    agreement, results = StepAgreement(VOTES), []
    casts = [
        ({"drain", "vote"}, False),
        ({"drain"} if me == "e0" else {"drain", "vote"}, me == "e1"),
        (set(), False),
        (VOTES, True),
    ]
    for step, (cast, work) in enumerate(casts):
        agreed = agreement.agree(group, cast, work, generation=1, operation="first", step=step)
        results.append([sorted(agreed.votes), agreed.work])
    return results


def vote_apart(link, store, members, me, field):
    group = _active(store, members, me).need("active").dp
    identity = {"generation": 1, "operation": "op", "step": 7}
    if me == "e1":
        identity[field] = {"generation": 2, "operation": "older", "step": 6}[field]
    with pytest.raises(IdentityMismatch) as error:
        StepAgreement(VOTES).agree(group, {"vote"}, True, **identity)
    return [error.value.field, str(error.value)]


def join_apart(link, store, members, me, field):
    groups = _active(store, members, me)
    generation = groups.need("active")
    facts = {"map": 5}
    if me == "e1":
        if field == "map":
            facts["map"] = 6
        else:
            setattr(
                generation, {"operation": "operation", "generation": "number"}[field], {"operation": "x"}.get(field, 9)
            )
    with pytest.raises(IdentityMismatch) as error:
        groups.join("active", facts=facts)
    return error.value.field


def join(link, store, members, me):
    return dict(_active(store, members, me).join("active", facts={"map": 5}))


@pytest.mark.parametrize("size", [1, 3])
def test_votes_are_full_only_if_all_cast_them_and_work_is_anybodys(engines, size):
    both = size == 1
    for engine in engines(vote, size):
        assert engine.result() == [
            [["drain", "vote"], False],
            [["drain"], not both],
            [[], False],
            [sorted(VOTES), True],
        ]


@pytest.mark.parametrize("field", ["generation", "operation", "step"])
def test_a_vote_of_another_generation_operation_or_step_is_named(engines, field):
    for engine in engines(vote_apart, 2, field=field):
        found, text = engine.result()
        assert found == field
        assert f"{field} differs between ranks" in text


@pytest.mark.parametrize("field", ["generation", "operation", "map"])
def test_a_join_of_strangers_names_what_differs(engines, field):
    assert [engine.result() for engine in engines(join_apart, 2, field=field)] == [field, field]


def test_a_join_returns_what_all_agree_on(engines):
    expected = {"operation": operation_hash("first"), "generation": 1, "map": 5}
    assert [engine.result() for engine in engines(join, 2)] == [expected] * 2


def test_an_unknown_vote_is_refused_before_anything_is_sent():
    with pytest.raises(GroupError, match="unknown votes elect"):
        StepAgreement(VOTES).agree(None, {"elect"}, False, generation=1, operation="op", step=0)
