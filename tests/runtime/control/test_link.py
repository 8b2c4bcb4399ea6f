"""Whatever the wire does to single messages, each arrives once and in order; a peer that was restarted is met anew."""

import random

import pytest

from elasticfsm.runtime import wire
from elasticfsm.runtime.link import Link, new_end, unpacked
from elasticfsm.runtime.transport import Hub, Mailbox, SocketDirectory


class Wire:
    """Two links and the messages between them, some lost, some twice, some late."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.a, self.b = Link(new_end()), Link(new_end())
        self.flying = []
        self.got = {"a": [], "b": []}
        self.now = 0.0

    def put(self, to, envelope, data):
        for _ in range(self.random.choice((0, 1, 1, 2))):
            self.flying.insert(
                self.random.randint(max(0, len(self.flying) - 3), len(self.flying)), (to, envelope, data)
            )

    def send(self, source, data):
        link, to = (self.a, "b") if source == "a" else (self.b, "a")
        self.put(to, link.stamp(data, True, self.now), data)

    def turn(self):
        self.now += 0.1
        for _ in range(self.random.randint(0, len(self.flying))):
            to, envelope, data = self.flying.pop(0)
            link = self.a if to == "a" else self.b
            if link.accept(unpacked(envelope), self.now) and data:
                self.got[to].append(data)
        for link, to in ((self.a, "b"), (self.b, "a")):
            for envelope, data in link.due(self.now):
                self.put(to, envelope, data)
            if link.owes:
                self.put(to, link.receipt(), b"")


@pytest.mark.parametrize("seed", range(20))
def test_each_message_arrives_once_and_in_order_although_some_are_lost_doubled_or_late(seed):
    between = Wire(seed)
    for number in range(40):
        between.send("a", b"%d" % number)
        between.send("b", b"%d" % -number)
        between.turn()
    for _ in range(2000):
        between.turn()
    assert between.got["b"] == [b"%d" % number for number in range(40)]
    assert between.got["a"] == [b"%d" % -number for number in range(40)]
    assert between.a.waiting == between.b.waiting == 0


def test_a_peer_that_was_restarted_gets_a_new_stream_and_nothing_of_the_old_one():
    engine, old, new = Link(new_end()), Link(new_end()), Link(new_end())
    engine.accept(unpacked(old.stamp(b"welcome", True, 0.0)), 0.0)
    lost = engine.stamp(b"to the old one", True, 0.0)
    assert not new.accept(unpacked(lost), 1.0)
    engine.accept(unpacked(new.receipt()), 1.0)
    assert engine.waiting == 0
    assert new.accept(unpacked(engine.stamp(b"to the new one", True, 1.0)), 1.0)
    assert engine.accept(unpacked(new.stamp(b"first", True, 1.0)), 1.0)


def test_sockets_lose_double_and_delay_and_still_every_message_comes_once_and_in_order():
    directory = SocketDirectory()
    try:
        with (
            Hub(directory.address("hub")) as hub,
            Mailbox(hub.address, directory.address("e0"), "e0") as engine,
        ):
            chosen = random.Random(1)
            hub.tap = engine.tap = lambda data: chosen.choice(([], [0.0], [0.0, 0.0], [0.1], [0.0, 0.2]))
            sent = [wire.Stopped(sender="e0", requests=((f"r{number}", 1, 0, ""),)) for number in range(8)]
            for message in sent:
                engine.send(message)
            got, back = [], []
            for _ in range(1000):
                engine_got = engine.poll(0.01)
                back += engine_got
                for _, message in hub.poll(0.01):
                    got.append(message)
                    hub.send("e0", message)
                if len(back) == len(sent):
                    break
            assert got == sent
            assert back == sent
    finally:
        directory.close()
