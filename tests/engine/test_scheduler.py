"""The scheduler alone: whatever the cache size, every request finishes, and no block is lost or shared."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticfsm.errors import RequestRefused
from elasticfsm.runtime.engine import BlockPool, Request, Scheduler, TokenEvent


def scheduler(blocks: int = 8, max_tokens: int = 16, max_context: int = 256) -> Scheduler:
    return Scheduler(BlockPool(blocks, block_size=4), max_tokens, max_context, vocab_size=256)


def request(name: str, prompt: int = 4, new: int = 3, stop: tuple[int, ...] = ()) -> Request:
    return Request(name, [1] * prompt, new, stop)


def step(subject: Scheduler, token: int = 7) -> list[TokenEvent]:
    chunks = subject.schedule()
    return subject.commit(chunks, [token for chunk in chunks if chunk.samples])


def check_invariants(subject: Scheduler) -> None:
    held = [block for one in subject.running for block in one.blocks]
    assert len(set(held)) == len(held)
    assert len(held) + subject.pool.free == subject.pool.total
    assert all(not one.blocks and not one.computed for one in subject.waiting)


Sizes = st.lists(st.tuples(st.integers(1, 20), st.integers(1, 12)), min_size=1, max_size=12)


@given(sizes=Sizes, blocks=st.integers(8, 20), max_tokens=st.integers(1, 24), gap=st.integers(0, 3))
def test_every_request_finishes_under_any_cache_and_step_size(
    sizes: list[tuple[int, int]], blocks: int, max_tokens: int, gap: int
) -> None:
    subject = scheduler(blocks, max_tokens)
    arriving = [request(str(number), prompt, new) for number, (prompt, new) in enumerate(sizes)]
    requests, events, steps = list(arriving), [], 0
    while arriving or subject.has_work:
        if arriving and steps % (gap + 1) == 0:
            subject.add(arriving.pop(0))
        chunks = subject.schedule()
        assert sum(chunk.count for chunk in chunks) <= max_tokens
        assert not subject.has_work or chunks, "a step with work takes at least one token"
        assert all(chunk.start + chunk.count <= 4 * len(chunk.request.blocks) for chunk in chunks)
        events += subject.commit(chunks, [7 for chunk in chunks if chunk.samples])
        check_invariants(subject)
        steps += 1
    for one, (_, new) in zip(requests, sizes, strict=True):
        own = [event for event in events if event.request_id == one.id]
        assert [event.index for event in own] == list(range(new))
        assert [event.finished for event in own] == [None] * (new - 1) + ["length"]
    assert subject.pool.free == blocks
    assert subject.counters.finished == len(sizes)


def test_preemption_takes_the_youngest_and_is_counted() -> None:
    subject = scheduler(blocks=4)
    old, young = request("old", 4, 10), request("young", 4, 10)
    subject.add(old)
    subject.add(young)
    while not subject.counters.preempted:
        step(subject)
    assert subject.running == [old]
    assert list(subject.waiting) == [young]
    assert young.generated


def test_a_stop_token_ends_a_request_and_is_emitted() -> None:
    subject = scheduler()
    subject.add(request("a", new=9, stop=(0,)))
    assert step(subject)[0].finished is None
    last = step(subject, token=0)[0]
    assert (last.token, last.index, last.finished) == (0, 1, "stop")
    assert not subject.has_work


def test_a_schedule_that_was_not_committed_is_repeated() -> None:
    subject = scheduler()
    subject.add(request("a", prompt=20))
    subject.add(request("b", prompt=2))
    assert subject.schedule() == subject.schedule()


def test_a_stopped_request_comes_back_with_its_tokens_and_frees_its_blocks() -> None:
    subject = scheduler()
    subject.add(request("a", new=9))
    step(subject)
    stopped = subject.stop_request("a")
    assert stopped is not None
    assert stopped.generated == [7]
    assert subject.pool.free == 8
    assert subject.stop_request("a") is None


def test_evicted_requests_are_oldest_first() -> None:
    subject = scheduler(blocks=4)
    for name in "abc":
        subject.add(request(name, prompt=6))
    step(subject)
    assert [one.id for one in subject.evict_all()] == ["a", "b", "c"]
    assert not subject.has_work


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (request("a", prompt=0), "prompt is empty"),
        (request("a", new=0), "nothing left to generate"),
        (request("a", prompt=30, new=3), "exceeds 32"),
        (Request("a", [300], 3), "token 300 is outside the vocabulary of 256"),
        (Request("a", [1], 3, generated=[1, 2, 3]), "3 of 3 tokens"),
        (request("twin"), "same id"),
    ],
)
def test_a_request_that_can_never_be_served_is_refused_with_the_reason(refused: Request, reason: str) -> None:
    subject = scheduler(blocks=8)
    subject.add(request("twin"))
    with pytest.raises(RequestRefused, match=reason):
        subject.add(refused)
    assert len(subject.waiting) == 1
    assert subject.counters.refused == 1


def test_a_request_beyond_the_context_is_refused() -> None:
    with pytest.raises(RequestRefused, match="context 16"):
        scheduler(max_context=16).add(request("a", prompt=14))


def test_a_request_that_fits_exactly_is_served() -> None:
    subject = scheduler(blocks=8)
    subject.add(request("a", prompt=29, new=3))
    while subject.has_work:
        step(subject)
    assert subject.counters.finished == 1
