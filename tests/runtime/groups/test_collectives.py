"""Collectives of all sizes give the right numbers, over one store, beside each other and without it."""

import pytest
import torch

from elasticfsm.errors import GroupError
from elasticfsm.runtime.census import census
from elasticfsm.runtime.deadline import Deadline
from elasticfsm.runtime.groups import Groups, Limits
from elasticfsm.runtime.rehearsal import Rehearsal


def _active(store, members, me, **options):
    groups = Groups(store, **options)
    groups.plan("first", 1, members, me)
    groups.create("active")
    return groups


def _next_generation(groups, number, members, me):
    groups.plan(f"op{number}", number, members, me)
    groups.create("standby")
    rehearsal = Rehearsal(groups)
    rehearsal.post("standby")
    rehearsal.wait("standby")
    groups.join("standby")


# -- in the children -----------------------------------------------------------------------------------------------


def every_collective(link, store, members, me):
    group = _active(store, members, me).need("active").ep
    rank, size = group.rank, group.size
    found = {}
    for op in ("sum", "max", "min"):
        t = torch.tensor([rank + 1.0])
        group.all_reduce(t, op)
        found[op] = t.item()
    gathered = torch.empty(size, 2)
    group.all_gather(gathered, torch.full((1, 2), float(rank)))
    found["all_gather"] = gathered[:, 0].tolist()
    kept = torch.empty(1)
    group.reduce_scatter(kept, torch.arange(size, dtype=torch.float32))
    found["reduce_scatter"] = kept.item()
    t = torch.tensor([float(rank)])
    group.broadcast(t, size - 1)
    found["broadcast"] = t.item()
    shared = torch.empty(size)
    group.all_to_all(shared, torch.full((size,), float(rank)))
    found["all_to_all"] = shared.tolist()
    group.barrier()
    return found


def send_around(link, store, members, me):
    group = _active(store, members, me).need("active").dp
    after, before = (group.rank + 1) % group.size, (group.rank - 1) % group.size
    got = torch.empty(3)
    first, second = (group.send, group.recv) if group.rank == 0 else (group.recv, group.send)
    for call in (first, second):
        if call == group.send:
            call(torch.full((3,), float(group.rank)), after)
        else:
            call(got, before)
    return got.tolist()


def change_generations(link, store, members, me, rounds):
    groups = _active(store, members, me)
    counts = []
    for number in range(2, rounds + 2):
        _next_generation(groups, number, members, me)
        side_by_side = census(groups).groups
        groups.switch()
        groups.need("active").world.barrier()
        groups.destroy("retired")
        groups.destroy("retired")
        groups.reaper.wait_empty(Deadline(5, "the retired generation"))
        now = census(groups)
        counts.append([side_by_side, now.groups, now.pending, now.reaped, now.descriptors, now.threads])
    groups.need("active").world.barrier()
    left = groups.close_all()
    return {"counts": counts, "left": left, "number": number}


def keep_going_without_store(link, store, members, me):
    groups = _active(store, members, me, limits=Limits(arrive=5, connect=5))
    link.say("created")
    link.hear()
    t = torch.ones(1)
    for _ in range(3):
        groups.need("active").dp.all_reduce(t)
    groups.plan("second", 2, members, me)
    with pytest.raises(GroupError) as refused:
        groups.create("standby")
    groups.need("active").dp.all_reduce(t)
    return [t.item(), str(refused.value)]


# -- the claims ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_collective_gives_the_right_numbers(engines, size):
    for rank, engine in enumerate(engines(every_collective, size)):
        assert engine.result() == {
            "sum": sum(range(1, size + 1)),
            "max": size,
            "min": 1,
            "all_gather": list(range(size)),
            "reduce_scatter": rank * size,
            "broadcast": size - 1,
            "all_to_all": list(range(size)),
        }


def test_send_and_recv_carry_bytes_to_the_named_rank(engines):
    results = [engine.result() for engine in engines(send_around, 3)]
    assert results == [[2.0] * 3, [0.0] * 3, [1.0] * 3]


def test_twenty_changes_of_generation_leave_nothing_behind(engines):
    rounds = 20
    for engine in engines(change_generations, 2, rounds=rounds):
        result = engine.result(60)
        assert all(count[:4] == [8, 4, 0, 0] for count in result["counts"])
        descriptors, threads = ({count[index] for count in result["counts"][1:]} for index in (4, 5))
        assert len(descriptors) == 1
        assert len(threads) == 1
        assert result["left"] == []
        assert result["number"] == rounds + 1


def test_serving_goes_on_when_the_store_is_gone_and_a_new_generation_is_refused(engines, store):
    started = engines(keep_going_without_store, 2)
    assert [engine.hear() for engine in started] == ["created"] * 2
    store.close()
    for engine in started:
        engine.say("go on")
    for engine in started:
        value, refused = engine.result()
        assert value == 2**4
        assert "no store at" in refused
