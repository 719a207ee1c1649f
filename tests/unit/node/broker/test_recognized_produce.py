"""A connection that sends the same request again is answered as one that never sent it before."""

from typing import Any

import pytest

from headrace.node.broker.recognized.memory import MOST_HEADS
from headrace.node.broker.recognized.produce import LONGEST_HEAD
from headrace.wire.protocol.framing import encode_request
from headrace.wire.protocol.messages import produce
from tests.unit.node.broker.repeating import Comer, damaged
from tests.unit.node.broker.rig import Rig, build, values_in


class Producer(Comer):
    def __init__(self, folder, *, stays):
        rig = Rig(folder)
        self.topic_id = rig.create("orders", partitions=2)
        super().__init__(rig, stays=stays)

    def values(self):
        return [values_in(self.rig.fetch("orders", partition=n).records) for n in range(2)]


def request(producer, *values, version=12, partition=0, acks=-1, topic="orders", client="me"):
    batch = build(values, producer.rig.now.wall_ms)
    part = produce.PartitionProduceData(partition, batch)
    by_id = version >= 13
    data = produce.TopicProduceData(
        "" if by_id else topic, producer.topic_id if by_id else bytes(16), [part]
    )
    asked = produce.ProduceRequest(None, acks, 1_000, [data])
    return b"".join(encode_request(produce, version, 7, client, asked))


@pytest.fixture
def both(tmp_path):
    return Producer(tmp_path / "stays", stays=True), Producer(tmp_path / "comes", stays=False)


@pytest.mark.parametrize("version", range(3, 14))
def test_a_request_is_decoded_once_and_answered_each_time(both, version, monkeypatch):
    counted = both[0].decodes(produce.API_KEY << 16 | version, monkeypatch)
    for values in (["a"], ["b", "c"], ["d" * 300], ["e" * 20_000]):
        replies = [producer.send(request(producer, *values, version=version)) for producer in both]
        assert replies[0] == replies[1] != b""
    assert both[0].values() == both[1].values()
    assert len(both[0].values()[0]) == 5
    assert len(counted) == (1 if version >= 9 else 4)


def test_partitions_acks_and_versions_are_told_apart(both):
    ways: list[dict[str, Any]] = [
        {"partition": 0},
        {"partition": 1},
        {"partition": 1, "acks": 1},
        {"version": 13},
        {"version": 9, "partition": 1},
        {"acks": 0},
        {"acks": 3},
        {"partition": 2},
        {"topic": "nobody"},
        {"client": "somebody else"},
    ]
    for number, way in enumerate(ways * 3):
        replies = [producer.send(request(producer, f"{number}", **way)) for producer in both]
        assert replies[0] == replies[1], way
    assert both[0].values() == both[1].values()


def test_any_byte_changed_and_any_length_is_answered_as_if_it_were_the_first(both):
    good = request(both[0], "good")
    for producer in both:
        producer.send(good)
    for frame in damaged(good):
        replies = [producer.send(frame) for producer in both]
        assert replies[0] == replies[1], frame
        for producer in both:  # the memory is there again, whatever became of the connection
            producer.send(good)
    assert both[0].values() == both[1].values()


def test_a_topic_that_was_made_again_takes_what_follows(both):
    stays = both[0]
    stays.send(request(stays, "old"))
    stays.rig.delete("orders")
    stays.send(request(stays, "to nobody"))
    stays.rig.create("orders", partitions=2)
    stays.send(request(stays, "new"))
    assert stays.values()[0] == [b"new"]


def test_a_connection_makes_us_remember_little(both):
    stays = both[0]
    for number in range(MOST_HEADS + 10):
        stays.send(request(stays, "x", client=f"client {number}"))
    assert len(stays.session.remembered.produce.known) <= MOST_HEADS
    known = len(stays.session.remembered.produce.known)
    stays.send(request(stays, "x", client="c" * (LONGEST_HEAD + 1)))
    assert len(stays.session.remembered.produce.known) == known
