"""Messages: what is sent arrives as it was, and what is no message is a typed error."""

import msgspec
import pytest

from elasticfsm.runtime import wire

STAMP = {"operation": "op-1", "generation": 3, "instance": "run-1", "sender": "e2"}
SETTINGS = wire.Settings(model="/m", slots=8, kv_blocks=64, max_tokens=32, store="127.0.0.1:1")

MESSAGES = [
    wire.Hello(pid=7, wake="ipc:///tmp/w", code="0.1.0+0", **STAMP),
    wire.Welcome(settings=SETTINGS, **STAMP),
    wire.Turned(reason="no", final=True, **STAMP),
    wire.Plan(
        protocol="scale_up",
        members=("e0", "e1"),
        previous=("e0",),
        roles={"e0": "existing", "e1": "new"},
        store="127.0.0.1:1",
        deadlines={"prepare": 1.5},
        **STAMP,
    ),
    wire.Peers(wakes={"e0": "ipc:///tmp/w"}, **STAMP),
    wire.Dead(engine="e1", **STAMP),
    wire.Booted(**STAMP),
    wire.Protocol(name="prepare", machine="scale_up.coordinator", receiver="scale_up.new", **STAMP),
    wire.Wake(name="wake", machine="serving.engine", receiver="serving.engine", wave=9, **STAMP),
    wire.Status(role="active", states={"serving.engine": "idle"}, step=4, running=1, waiting=0, **STAMP),
    wire.Failure(text="why", fatal=True, **STAMP),
    wire.Submit(request="r1", epoch=2, prompt=(1, 2), max_new_tokens=3, generated=(4,), **STAMP),
    wire.Tokens(step=4, tokens=(wire.Token("r1", 2, 0, 65, "stop"),), **STAMP),
    wire.Stopped(requests=(("r1", 2, 5, ""),), **STAMP),
    wire.Retire(within=60.0, **STAMP),
    wire.Adopt(pid=7, store="127.0.0.1:1", **STAMP),
    wire.Here(pid=7, wake="ipc:///tmp/w", role="active", members=("e0", "e1"), lost=2, **STAMP),
    wire.Exit(**STAMP),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_was(message):
    assert wire.decode(wire.encode(message)) == message


def test_every_kind_of_message_is_tested():
    assert {type(message) for message in MESSAGES} == set(wire.Message.__subclasses__())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\xc1\xff\xfe",
        b"not a message",
        msgspec.msgpack.encode({"kind": "bomb"}),
        msgspec.msgpack.encode({"kind": "exit", "surprise": 1}),
        msgspec.msgpack.encode({"kind": "hello", "pid": "seven", "wake": ""}),
        msgspec.msgpack.encode({"kind": "failure", "text": "x"})[:-1],
        b"\x81\xa4kind\xa4\xff\xff\xff\xff",
    ],
)
def test_garbage_is_a_typed_error(data):
    with pytest.raises(wire.WireError, match="dropped"):
        wire.decode(data)


def test_who_comes_and_why_it_is_turned_away_is_understood_between_all_versions():
    hello = wire.decode(msgspec.msgpack.encode({"kind": "hello", "pid": 7, "wake": "", "sender": "e1", "later": [1]}))
    assert (hello.sender, hello.code) == ("e1", "")
    turned = wire.decode(msgspec.msgpack.encode({"kind": "turned", "reason": "no", "final": True, "later": 1}))
    assert turned.final


def test_a_message_above_the_limit_is_neither_sent_nor_read():
    with pytest.raises(wire.WireError, match="limit"):
        wire.encode(wire.Failure(text="x" * wire.LIMIT))
    with pytest.raises(wire.WireError, match="limit"):
        wire.decode(b"\x00" * (wire.LIMIT + 1))
