"""Transactions of a producer whose epochs run out, and of one whose was ended by hand."""

from __future__ import annotations

from typing import Any

from headrace.protocol.messages import init_producer_id, write_txn_markers
from headrace.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.conformance.stage import Stage
from tests.conformance.stories.transactions import (
    ADDS,
    BUMPS,
    Producer,
    is_complete,
    ready,
    stable_offset,
)

LAST_FOR_CLIENTS = 32_766
TOGETHER = 250


def with_the_last_epoch(stage: Stage, name: str) -> Producer:
    """One request per epoch, many on their way at once: there is no shorter way."""
    producer = ready(stage, name)
    while producer.epoch < LAST_FOR_CLIENTS:
        upper = min(producer.epoch + TOGETHER, LAST_FOR_CLIENTS)
        for epoch in range(producer.epoch, upper):
            request = InitProducerIdRequest(name, producer.timeout_ms, producer.id, epoch)
            stage.connection.send(init_producer_id, 5, request)
        for epoch in range(producer.epoch, upper):
            answer: Any = stage.connection.answer(init_producer_id, 5)
            assert (answer.error_code, answer.producer_epoch) == (0, epoch + 1), answer
        producer.epoch = upper
    return producer


def the_last_epoch_of_clients(stage: Stage) -> None:
    topic = stage.topic("txn-last-epoch")
    producer = with_the_last_epoch(stage, "last-epoch")
    producer.add(None, 3, (topic.name, [0]))
    producer.send("record before KIP-890", 10, topic, 0)
    producer.end("commit before KIP-890", 4, commit=True)
    stage.until(lambda: is_complete(producer))
    producer.send("record since KIP-890", ADDS, topic, 1)
    old = producer.id, producer.epoch
    producer.end("commit since KIP-890", BUMPS, commit=True)
    stage.until(lambda: is_complete(producer))
    new = producer.id, producer.epoch
    for commit in (True, False):
        word = "commit" if commit else "abort"
        producer.id, producer.epoch = old
        producer.end(f"{word} again", BUMPS, commit=commit)
        producer.id, producer.epoch = old[0], old[1] + 1
        producer.end(f"{word} with the epoch that nobody has", BUMPS, commit=commit)
    producer.id, producer.epoch = old
    producer.send("late record", ADDS, topic, 2)
    producer.init("next epoch of the old id", expected=True)
    producer.id, producer.epoch = new
    producer.send("record of the new id", ADDS, topic, 0)
    producer.end("commit of the new id", BUMPS, commit=True)
    stage.until(lambda: stable_offset(stage, topic) == 6)


def going_on_after_an_end_by_hand(stage: Stage) -> None:
    for version in (10, 11, ADDS, 13):
        topic = stage.topic(f"txn-goes-on-{version}")
        producer = ready(stage, f"goes-on-{version}")
        if version < ADDS:
            producer.add(None, 3, (topic.name, [0]))
        producer.send(f"v{version} record", version, topic, 0)
        marker = WritableTxnMarker(
            producer.id, producer.epoch, False, [WritableTxnMarkerTopic(topic.name, [0])], 0
        )
        stage.connection.ask(write_txn_markers, 1, WriteTxnMarkersRequest([marker]))
        producer.send(f"v{version} gap", version, topic, 2)
        producer.send(f"v{version} next", version, topic, 1)
        producer.send(f"v{version} the first again", version, topic, 0)
        producer.end(f"v{version} commit", BUMPS if version >= ADDS else 4, commit=True)


STORIES = (the_last_epoch_of_clients, going_on_after_an_end_by_hand)
