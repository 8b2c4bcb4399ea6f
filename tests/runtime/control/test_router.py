"""The router: one record a request, one owner at a time, one outcome."""

import numpy as np
import pytest

from elasticfsm.errors import DeadlineExpired, RequestRefused
from elasticfsm.runtime.router import Router
from elasticfsm.runtime.wire import Token


class Engines:
    """Notes what a router sends."""

    def __init__(self):
        self.sent = []
        self.router = Router(lambda engine, message: self.sent.append((engine, message)))

    def submits(self, engine):
        return [message for to, message in self.sent if to == engine]


@pytest.fixture
def engines():
    return Engines()


def token(stream, index, value=7, epoch=1, done=""):
    return Token(stream.id, epoch, index, value, done)


def test_a_request_without_an_engine_waits_until_one_is_admitted(engines):
    stream = engines.router.submit([1, 2], 5)
    assert engines.sent == []
    engines.router.admit(["e0"])
    (message,) = engines.submits("e0")
    assert (message.request, message.epoch, message.prompt) == (stream.id, 1, (1, 2))


def test_requests_go_to_the_engine_with_the_fewest(engines):
    engines.router.admit(["e0", "e1"])
    first = engines.router.submit([1], 5)
    engines.router.submit([1], 5)
    engines.router.submit([1], 5)
    assert engines.router.load() == {"e0": 2, "e1": 1}
    engines.router.tokens("e0", [token(first, 0, done="stop")])
    assert engines.router.submit([1], 5).owner in ("e0", "e1")
    assert engines.router.load() == {"e0": 2, "e1": 1} or engines.router.load() == {"e0": 1, "e1": 2}


def test_tokens_out_of_order_twice_or_of_strangers_are_dropped_and_counted(engines):
    router = engines.router
    router.admit(["e0"])
    stream = router.submit([1], 5)
    router.tokens("e0", [token(stream, 0, 10), token(stream, 0, 10), token(stream, 2, 12)])
    router.tokens("e1", [token(stream, 1, 99)])
    router.tokens("e0", [token(stream, 1, 99, epoch=7), Token("nobody", 1, 0, 5)])
    router.tokens("e0", [token(stream, 1, 11, done="length"), token(stream, 2, 12)])
    assert (stream.tokens, stream.outcome, stream.reason) == ([10, 11], "finished", "length")
    assert router.dropped == {"index": 2, "epoch": 2, "unknown": 1, "ended": 1}


def test_a_hand_over_starts_from_the_record_under_a_new_epoch(engines):
    router = engines.router
    router.admit(["e0", "e1"])
    stream = router.submit([1, 2], 5)
    router.tokens("e0", [token(stream, 0, 10), token(stream, 1, 11)])
    router.retire(["e0"])
    router.stopped("e0", stream.id, 1)
    (message,) = engines.submits("e1")
    assert message.generated == (10, 11)
    assert message.epoch > 1
    router.tokens("e0", [token(stream, 2, 99)])  # the former owner is late
    router.tokens("e1", [Token(stream.id, message.epoch, 2, 12, "stop")])
    assert stream.tokens == [10, 11, 12]
    assert (stream.outcome, stream.handovers, router.outcomes["finished"]) == ("finished", 1, 1)
    assert router.dropped["epoch"] == 1


def test_a_retired_engine_gets_nothing_new_and_keeps_what_it_runs(engines):
    router = engines.router
    router.admit(["e0", "e1"])
    stream = router.submit([1], 5)
    router.retire(["e0"])
    assert {router.submit([1], 5).owner for _ in range(4)} == {"e1"}
    router.tokens("e0", [token(stream, 0, done="stop")])
    assert stream.outcome == "finished"


def test_requests_of_a_lost_engine_go_on_elsewhere(engines):
    router = engines.router
    router.admit(["e0"])
    stream = router.submit([1], 5)
    router.lost(["e0"])
    assert stream.owner == ""
    router.admit(["e1"])
    assert engines.submits("e1")[0].request == stream.id


def test_every_request_has_exactly_one_outcome_when_all_ends(engines):
    router = engines.router
    router.admit(["e0"])
    done, open_ = router.submit([1], 5), router.submit([1], 5)
    router.tokens("e0", [token(done, 0, done="stop")])
    router.close("the end")
    router.stopped("e0", open_.id, 1)
    assert [done.outcome, open_.outcome, open_.reason] == ["finished", "failed", "the end"]
    assert sum(router.outcomes.values()) == 2
    with pytest.raises(RequestRefused, match="the end"):
        router.submit([1], 5)


def test_a_request_that_can_never_be_served_is_refused_or_failed_with_the_reason(engines):
    router = engines.router
    with pytest.raises(RequestRefused, match="at least one"):
        router.submit([], 5)
    router.admit(["e0"])
    stream = router.submit([1], 5, request="mine")
    with pytest.raises(RequestRefused, match="ids are unique"):
        router.submit([1], 5, request="mine")
    router.stopped("e0", "mine", 1, "too long")
    assert (stream.outcome, stream.reason) == ("failed", "too long")


def test_waiting_for_a_stream_has_a_deadline(engines):
    stream = engines.router.submit([1], 5)
    with pytest.raises(DeadlineExpired, match="no outcome"):
        stream.wait(0.01)
    with pytest.raises(DeadlineExpired, match="token 0"):
        next(stream.stream(0.01))


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ((["a"], 5), r"prompt\[0\] is 'a'; expected an integer"),
        (("text", 5), r"prompt\[0\] is 't'"),
        (([1, 2.5], 5), r"prompt\[1\] is 2.5"),
        (([1, None], 5), r"prompt\[1\] is None"),
        (([1, -3], 5), r"prompt\[1\] is -3"),
        (([1 << 70], 5), r"prompt\[0\] is"),
        ((7, 5), "prompt is 7; expected a list of token ids"),
        (([True], 5), r"prompt\[0\] is True"),
        (([1], "5"), "max_new_tokens is '5'"),
        (([1], 1.5), "max_new_tokens is 1.5"),
        (([1], None), "max_new_tokens is None"),
        (([1], -1), "max_new_tokens is -1"),
        (([1], 0), "0 new tokens"),
        (([1], 5, ["stop"]), r"stop_tokens\[0\] is 'stop'"),
        (([1], 5, (), 9), "the id of a request is 9"),
    ],
)
def test_what_no_engine_could_read_is_refused_and_nothing_is_sent(engines, request_, said):
    engines.router.admit(["e0"])
    with pytest.raises(RequestRefused, match=said):
        engines.router.submit(*request_)
    assert engines.sent == [] and engines.router.load() == {}


def test_integers_of_other_libraries_are_sent_as_plain_ones(engines):
    engines.router.admit(["e0"])
    engines.router.submit(np.array([1, 2]), np.int64(5), [np.int32(3)])
    (message,) = engines.submits("e0")
    assert [type(each) for each in (*message.prompt, message.max_new_tokens, *message.stop_tokens)] == [int] * 4


def test_whoever_listens_hears_of_tokens_and_of_the_end(engines):
    engines.router.admit(["e0"])
    stream = engines.router.submit([1], 5)
    heard, ended = [], []
    engines.router.ended = ended.append
    stream.listen(lambda: heard.append((len(stream.tokens), stream.outcome)))
    engines.router.tokens("e0", [token(stream, 0), token(stream, 1, done="stop")])
    assert heard == [(0, ""), (1, ""), (2, ""), (2, "finished")]
    assert ended == [stream]
    assert (engines.router.generated, engines.router.prompted) == ({"e0": 2}, {"e0": 1})


def test_a_router_that_is_shut_refuses_what_comes_and_finishes_what_runs(engines):
    engines.router.admit(["e0"])
    stream = engines.router.submit([1], 5)
    engines.router.shut("the end is near")
    with pytest.raises(RequestRefused, match="the end is near"):
        engines.router.submit([1], 5)
    engines.router.tokens("e0", [token(stream, 0, done="stop")])
    assert stream.outcome == "finished"


def test_requests_of_a_former_router_are_reported_as_failed(engines):
    engines.router.void(3)
    assert engines.router.outcomes == {"failed": 3}
