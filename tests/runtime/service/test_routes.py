"""The HTTP routes on a real deployment: words, codes and shapes that other engines' clients know."""

import json
import threading

import msgspec
import pytest
from served import gone, until

from elasticfsm.errors import RequestRefused
from elasticfsm.runtime.engine.reference import check_tokens
from elasticfsm.runtime.engine.tokenizer import END, encode
from elasticfsm.runtime.models import PSALTER
from elasticfsm.runtime.service.metrics import Metrics
from elasticfsm.runtime.service.server import Server

pytestmark = pytest.mark.slow

TEXT = "And the LORD said unto Moses, "
WORDS = {  # vLLM's, those of the public proposal for it, SGLang's aliases
    "is_scaling_elastic_ep phase epoch error requested_data_parallel_size",
    "active_data_parallel_size operation_id instance_id generation participating_ranks safe_to_delete_ranks",
    "safe_to_delete last_error effective_ep_size pending_ep_size scale_phase valid_sizes min_size max_size consistent",
}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "expected one of them"),
        (b"{", "the body is wrong"),
        (b'{"new_data_parallel_size": true}', "Expected `int"),
        (b'{"new_data_parallel_size": 1.5}', "Expected `int"),
        (b'{"new_data_parallel_size": 0}', "not a number of engines"),
        (b'{"new_data_parallel_size": 5}', "valid sizes: 1 to 4"),
        (b'{"new_data_parallel_size": 2, "new_ep_size": 3}', "expected one of them"),
        (b'{"new_data_parallel_size": 2, "drain_timeout": -1}', "drain_timeout is -1"),
        (b'{"new_data_parallel_size": 2, "drain_timeout": 1e999}', "Number out of range"),
        (b'{"new_data_parallel_size": 2, "drian": true}', "unknown field `drian`"),
        (b'{"new_data_parallel_size": 1, "retire_ranks": [7]}', "ranks are 0 to 0"),
        (b'{"new_data_parallel_size": 1, "retire_engines": ["e9"]}', "cannot remove e9"),
        (b'{"new_data_parallel_size": 2, "add_engines": ["e0"]}', "is here already"),
        (b'{"new_data_parallel_size": 2, "add_engines": ["a/b"]}', "engine 'a/b': expected 1 to 63"),
        (b'{"new_data_parallel_size": 2, "add_engines": ["coordinator"]}', "the coordinator itself"),
        (b'{"new_data_parallel_size": 2, "operation_id": "a/b"}', "operation 'a/b': expected 1 to 63"),
        (b'{"new_data_parallel_size": 2, "operation_id": "a\\u001b[2J"}', "expected 1 to 63"),
    ],
)
def test_an_impossible_request_is_a_400_that_says_why_and_changes_nothing(served, body, said):
    code, answer, _ = served.raw("POST", "/scale_elastic_ep", body)
    assert code == 400
    assert said in answer["error"]["message"]
    assert answer["error"] == answer["error"] | {"type": "Bad Request", "param": None, "code": 400}
    assert served.deployment.operations.running is None


def test_what_no_browser_of_this_machine_may_send_is_refused(served):
    body = b'{"new_data_parallel_size": 2}'
    assert served.raw("POST", "/scale_elastic_ep", body, Origin="http://example.org")[0] == 403
    assert served.raw("POST", "/scale_elastic_ep", body, Host="rebound.example.org")[0] == 403
    assert served.raw("GET", "/nowhere")[1]["error"]["code"] == 404
    assert served.raw("GET", "/scale_elastic_ep")[1]["error"]["code"] == 405
    assert served.raw("POST", "/engines/zz/exit")[1]["error"] == {
        "message": "there is no engine zz",
        "type": "Not Found",
        "param": None,
        "code": 404,
    }


def test_nothing_is_served_beyond_this_machine():
    for address in ("0.0.0.0:0", "192.0.2.1:80", "8000", "127.0.0.1:x"):
        with pytest.raises(RequestRefused, match="--http"):
            Server(address)


def test_get_and_post_give_one_status_in_all_words_and_all_sizes_agree(served):
    until(lambda: served.status()["consistent"])
    seen = served.status()
    assert set(" ".join(WORDS).split()) <= seen.keys()
    assert served.client.post("/is_scaling_elastic_ep", {}).body.keys() == seen.keys()
    assert served.client.get("/engine/control/is_scaling_elastic_ep").code == 200
    assert (seen["valid_sizes"], seen["active_data_parallel_size"]) == ([1, 2, 3, 4], 1)
    assert seen["sizes"] == {"coordinator": 1, "router": 1, "living": 1, "engines": {"e0": 1}}
    capacity = served.client.get("/ep_capacity").body
    assert (capacity["total_gpus"], capacity["used_gpus"], capacity["available_gpus"]) == (4, 1, 3)


def test_a_dry_run_says_what_would_happen_and_does_nothing(served):
    said = served.scale(3, dry_run=True)
    assert (said.code, said.body["direction"], said.body["engines_to_add"]) == (200, "up", 2)
    assert said.body["kv_tokens_after"] == 3 * said.body["kv_tokens_before"]
    assert served.scale(9, dry_run=True).code == 400
    assert served.deployment.members == ("e0",)


def test_the_same_size_is_a_no_op_with_the_known_message(served):
    answer = served.scale(1)
    assert (answer.code, answer.body["message"]) == (200, "Scaled to 1 data parallel engines")


def test_a_request_is_answered_whole_or_as_a_stream_with_the_reference_tokens(served):
    body = {"prompt": TEXT, "max_tokens": 20}
    whole = served.client.post("/v1/completions", body).body
    code, text, _ = served.raw("POST", "/v1/completions", json.dumps(body | {"stream": True}).encode())
    events = [json.loads(line.removeprefix("data: ")) for line in text.split("\n\n") if line.startswith("data: {")]
    streamed = [token for event in events for token in event["choices"][0]["token_ids"]]
    assert (code, text.endswith("data: [DONE]\n\n")) == (200, True)
    assert streamed == whole["choices"][0]["token_ids"]
    assert check_tokens(PSALTER, [(encode(TEXT), streamed)]) == []
    assert whole["usage"] == {"prompt_tokens": len(encode(TEXT)), "completion_tokens": 20, "total_tokens": 50}
    assert events[-1]["choices"][0]["finish_reason"] == "length"
    neutral = {"model": "", "stop": None, "logprobs": None, "echo": False, "best_of": 1, "seed": 7, "top_p": 0.9}
    assert served.client.post("/v1/completions", body | neutral).body["choices"] == whole["choices"]


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        ({"prompt": ""}, 400, "at least one of each"),
        ({"prompt": [-1]}, 400, "prompt[0] is -1"),
        ({"temperature": 1.0}, 400, "temperature is 1.0"),
        ({"n": 2}, 400, "n is 2"),
        ({"stop": ["\n"]}, 400, "stop is not served here"),
        ({"logprobs": 1}, 400, "logprobs is not served here"),
        ({"best_of": 2}, 400, "best_of is not served here"),
        ({"max_tokens": -1}, 400, "max_tokens is -1"),
        ({"max_tokens": 1 << 40}, 400, "max_tokens is 1099511627776"),
        ({"stop_token_ids": [-1]}, 400, "stop_token_ids has -1"),
        ({"max_token": 5}, 400, "unknown field `max_token`"),
        ({"model": "gpt-4"}, 404, "model 'gpt-4' is not served here; expected 'psalter"),
        ({"max_tokens": 100_000}, 400, "exceeds"),
    ],
)
def test_a_request_that_cannot_be_answered_as_asked_is_refused_once_by_the_name_of_its_field(served, wrong, code, said):
    answer = served.client.post("/v1/completions", {"prompt": TEXT} | wrong)
    assert (answer.code, said in answer.error) == (code, True), answer.error
    assert answer.error.count("request r") <= 1


def test_a_body_that_is_too_large_is_refused_before_it_is_read(served):
    for path in ("/v1/completions", "/scale_elastic_ep", "/scale_elastic_ep/cancel"):
        code, answer, _ = served.raw("POST", path, b"", **{"Content-Length": "60000000"})
        assert (code, "at most" in answer["error"]["message"]) == (413, True)
    pieces = (b" " * 1024 * 1024 for _ in range(9))
    code, answer, _ = served.raw("POST", "/v1/completions", pieces)
    assert (code, "more than" in answer["error"]["message"]) == (413, True)


def test_an_operation_is_joined_refused_to_others_and_cancelled_while_status_and_metrics_answer(served, monkeypatch):
    deployment = served.deployment  # nobody starts the engine, so that it stays where it is
    monkeypatch.setattr(deployment, "options", msgspec.structs.replace(deployment.options, launch=False))
    begun = served.scale(2, wait=False, operation_id="op-first")
    assert begun.code == 202
    assert served.scale(2, wait=False).body["operation"]["operation_id"] == "op-first"
    other = served.scale(3)
    assert (other.code, other.body["operation"]["operation_id"]) == (409, "op-first")
    assert "op-first" in other.error
    assert served.scale(2, expected_instance_id="run-of-yesterday").code == 409
    seen = served.status()
    assert (seen["is_scaling_elastic_ep"], seen["epoch"], seen["phase"]) == (True, "op-first", "preparing")
    assert (seen["requested_data_parallel_size"], seen["active_data_parallel_size"]) == (2, 1)
    until(lambda: served.metric('elasticfsm_engines{state="joining"}') == 1)  # once it is launched
    assert served.metric("elasticfsm_requested_size") == 2
    assert served.raw("GET", "/engines/e1/ready")[:2] == (503, "joining\n")
    assert served.raw("GET", "/ready")[0] == served.raw("GET", "/health")[0] == 200
    assert served.client.post("/scale_elastic_ep/cancel", {"operation_id": "op-other"}).code == 409
    cancelled = served.client.post("/scale_elastic_ep/cancel", {})
    record = cancelled.body["operation"]
    assert (cancelled.code, record["phase"], record["cause"]) == (200, "aborted", "cancelled")
    assert record["safe_to_delete"] == ["e1"]
    assert served.client.post("/scale_elastic_ep/cancel", {}).code == 409
    again = served.scale(2, operation_id="op-first")  # the outcome of an ended operation is answered again
    assert (again.code, again.body["operation"]["phase"]) == (409, "aborted")
    assert served.scale(3, operation_id="op-first").code == 409
    assert (deployment.members, deployment.failed) == (("e0",), "")


def test_a_deadline_that_passes_while_engines_prepare_is_a_408_and_the_old_size_serves(served):
    late = served.scale(2, prepare_timeout=0.05)
    record = late.body["operation"]
    assert (late.code, record["phase"], record["cause"]) == (408, "aborted", "deadline"), late
    assert (record["prepare_timeout"], record["active_size"], record["available_size"]) == (0.05, 1, 1)
    assert served.deployment.members == ("e0",)


def cancel_once_it_is_decided(deployment, served, monkeypatch):
    """Ask for it just before the decision to complete is written; returns where the answer will be."""
    answers, asked = [], []

    def keep(record):
        if record.detail == "completing" and not asked:
            asked.append(record)
            ask = threading.Thread(target=lambda: answers.append(served.client.post("/scale_elastic_ep/cancel", {})))
            ask.start()
            until(deployment.operations.current.cancelled.is_set)
        deployment.ledger.write(record)

    monkeypatch.setattr(deployment.operations, "_keep", keep)
    return answers


def test_growing_and_shrinking_over_http_keeps_every_request_and_every_count(served, monkeypatch):
    deployment = served.deployment
    streams = [deployment.submit(encode(TEXT), 120, (END,)) for _ in range(3)]
    cancelled = cancel_once_it_is_decided(deployment, served, monkeypatch)
    grown = served.scale(2)
    assert (grown.code, grown.body["operation"]["active_size"]) == (200, 2), grown
    until(lambda: cancelled)
    assert (cancelled[0].code, "too late" in cancelled[0].error) == (409, True)
    members = deployment.members
    streams += [deployment.submit(encode(TEXT), 60, (END,)) for _ in range(2)]
    shrunk = served.client.post("/scale_elastic_ep", {"new_ep_size": 1, "retire_ranks": [0]})
    record = shrunk.body["operation"]
    assert (shrunk.code, record["safe_to_delete"], record["available_size"]) == (200, [members[0]], 1)
    assert deployment.members == members[1:]
    seen = served.status()
    assert (seen["safe_to_delete"], seen["safe_to_delete_ranks"]) == (["e0"], [0])
    assert {stream.wait(60) for stream in streams} == {"finished"}
    assert check_tokens(PSALTER, [(stream.prompt, stream.tokens) for stream in streams]) == []
    assert served.metric('elasticfsm_operations_total{direction="up",outcome="completed"}') == 1
    assert served.metric('elasticfsm_operations_total{direction="up",outcome="aborted"}') == 2
    assert served.metric('elasticfsm_operations_total{direction="down",outcome="completed"}') == 1
    assert served.metric("elasticfsm_generation") == 3
    assert served.metric("elasticfsm_pause_seconds_count") >= 1
    assert served.metric('elasticfsm_transfer_bytes_total{path="nixl"}') > 1_000_000
    ended = [served.metric(f'elasticfsm_requests_total{{outcome="{way}"}}') for way in ("finished", "handed_over")]
    assert sum(ended) == len(streams) + 3
    assert ended[1] >= 1


def test_the_next_operation_may_have_to_wait_and_is_told_how_long(served, monkeypatch):
    deployment = served.deployment
    monkeypatch.setattr(deployment, "options", msgspec.structs.replace(deployment.options, cooldown=1000.0))
    code, answer, headers = served.raw("POST", "/scale_elastic_ep", b'{"new_data_parallel_size": 2}')
    assert (code, served.scale(len(deployment.members)).code) == (409, 200)
    assert 900 < answer["retry_after"] <= 1000
    assert int(headers["retry-after"]) == round(answer["retry_after"])


def test_metrics_that_other_engines_have_too_may_have_their_names(served):
    ended, paused = served.deployment.router.ended, served.deployment.counts.paused
    try:
        text = Metrics(served.deployment, "vllm").text().decode()
    finally:
        served.deployment.router.ended, served.deployment.counts.paused = ended, paused
    names = {line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    assert {"vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:generation_tokens_total"} <= names
    assert {"elasticfsm_generation", "elasticfsm_stale_messages_total"} <= names
    assert not {name for name in names if name.startswith("elasticfsm_num_requests")}


def test_requests_may_be_finished_before_an_engine_leaves_and_a_drain_that_takes_too_long_changes_nothing(served):
    deployment = served.deployment
    assert served.scale(2).code == 200
    before = deployment.members
    assert set(served.status()["engines"]) == set(before)  # those that ended in former operations are not shown
    streams = [deployment.submit(encode(TEXT), 120, (END,)) for _ in range(2)]
    late = served.scale(1, drain=True, drain_timeout=0.05)
    assert (late.code, deployment.members) == (408, before), late
    assert "drain timeout" in late.error
    until(lambda: set(deployment.router.admitted) == set(before))
    answers = []
    asking = threading.Thread(target=lambda: answers.append(served.scale(1, drain=True)))
    asking.start()
    assert {stream.wait(60) for stream in streams} == {"finished"}
    asking.join(60)
    assert (answers[0].code, [stream.handovers for stream in streams]) == (200, [0, 0]), answers
    (left,) = set(before) - set(deployment.members)
    assert gone(deployment.roster.get(left).pid)
