"""Transactions of a producer whose epochs are used up: the next one needs another producer id.

Clients are given epochs up to 32,766; the last one is the coordinator's, to fence with. Told to
brokers with a past (`past.py`), since nobody wants to ask 32,766 times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from headrace.wire.protocol.messages import (
    add_offsets_to_txn,
    api_versions,
    describe_transactions,
    end_txn,
    init_producer_id,
    offset_fetch,
    produce,
    txn_offset_commit,
    update_features,
)
from headrace.wire.protocol.messages.api_versions import ApiVersionsRequest
from headrace.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.group_offsets import fetch
from tests.conformance.stories.past import (
    CLIENTS,
    LAST_FOR_CLIENTS,
    NEXT_IDS,
    QUESTIONS,
    is_known,
    who,
    with_past,
)
from tests.conformance.stories.producers import gives_ids
from tests.conformance.stories.transactions import (
    ADDS,
    BUMPS,
    Producer,
    add_offsets,
    is_complete,
    is_stable,
    stable_offset,
)

SAFE_DOWNGRADE, UPGRADE = 2, 1


def worn(stage: Stage, name: str) -> Producer:
    with_past(stage)
    stage.until(lambda: is_known(stage, name), 60)
    stage.until(lambda: gives_ids(stage))
    return who(stage, name)


def the_last_epoch_of_clients(stage: Stage) -> None:
    producer = worn(stage, "worn-ends")
    topic = stage.topic("worn-ends")
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


def a_new_producer_comes(stage: Stage) -> None:
    """With nothing open: one that says nothing of before, and the same one once more."""
    for version in init_producer_id.VERSIONS:
        producer = worn(stage, f"worn-init-{version}")
        old = producer.id, producer.epoch
        producer.init(f"v{version} anew", version)
        producer.init(f"v{version} anew again", version)
        if version >= 3:
            producer.id, producer.epoch = old
            producer.init(f"v{version} the old one", version, expected=True)
    for version in range(3, 6):
        producer = worn(stage, f"worn-own-{version}")
        old = producer.id, producer.epoch
        producer.init(f"v{version} goes on", version, expected=True)
        for line, epoch in {
            "its answer was lost": old[1],
            "an epoch of before": old[1] - 1,
            "the epoch that nobody has": old[1] + 1,
        }.items():
            right, (producer.id, producer.epoch) = (producer.id, producer.epoch), (old[0], epoch)
            producer.init(f"v{version} {line}", version, expected=True)
            producer.id, producer.epoch = right
        producer.init(f"v{version} the new one", version, expected=True)


def taken_over_while_it_is_open(stage: Stage) -> None:
    with_past(stage)
    topic = stage.topic("worn-open")
    fenced_in_the_last_epoch(stage, "open", topic, taken_over)


def time_is_up(stage: Stage) -> None:
    with_past(stage)
    topic = stage.topic("worn-late")
    fenced_in_the_last_epoch(stage, "late", topic, lambda _: None)


def with_transaction_version_1(stage: Stage) -> None:
    """The broker's own: it says how the coordinator aborts over a producer's head."""
    with_past(stage)
    topic = stage.topic("worn-first-version")
    with first_version(stage):
        fenced_in_the_last_epoch(stage, "first-version", topic, taken_over)


def taken_over(producer: Producer) -> None:
    request = InitProducerIdRequest(producer.transactional_id, 60_000)
    answer = producer.stage.connection.ask(init_producer_id, 5, request)
    producer.keep(f"{producer.transactional_id}: taken over", answer)


def fenced_in_the_last_epoch(
    stage: Stage, how: str, topic: Topic, fence: Callable[[Producer], None]
) -> None:
    """One id per question, since some answers change what is asked about."""
    found = {
        (client, asks): worn(stage, f"worn-{how}-{client}-{asks}")
        for client in CLIENTS
        for asks in QUESTIONS
    }
    for (client, _), producer in found.items():
        if client == 1:
            producer.add(None, 3, (topic.name, [0]))
        producer.send(None, 10 if client == 1 else ADDS, topic, 0)
        fence(producer)
    for producer in found.values():  # all of them: their markers lie between what comes then
        stage.until(lambda producer=producer: is_complete(producer))  # type: ignore[misc]
    for (client, asks), producer in found.items():
        describe(producer, f"client {client} {asks}: described")
        question = {"goes on": goes_on, "ends": ends, "comes again": comes_again}[asks]
        question(producer, f"client {client}", topic)


def describe(producer: Producer, line: str) -> None:
    request = DescribeTransactionsRequest([producer.transactional_id])
    answer: Any = producer.stage.connection.ask(describe_transactions, 0, request)
    for found in answer.transaction_states:
        found.transaction_start_time_ms = min(found.transaction_start_time_ms, 1)
        if found.producer_id not in producer.seen:
            producer.seen.append(found.producer_id)
        found.producer_id = producer.seen.index(found.producer_id)
    producer.stage.keep(line, answer)


def goes_on(producer: Producer, said: str, topic: Topic) -> None:
    """As if nothing had happened; and somebody with the epoch that the coordinator fenced with."""
    for word, epoch in (("its epoch", LAST_FOR_CLIENTS), ("the last epoch", LAST_FOR_CLIENTS + 1)):
        producer.epoch = epoch
        line = f"{said} {word}:"
        for version in range(4):
            producer.add(f"{line} add v{version}", version, (topic.name, [0]))
        for version in add_offsets_to_txn.VERSIONS:
            add_offsets(producer, f"{line} add offsets v{version}", version, "worn")
        for version in txn_offset_commit.VERSIONS:
            producer.offsets(f"{line} offsets v{version}", version, topic.name, group="worn")
        for version in produce.VERSIONS:
            producer.send(f"{line} record v{version}", version, topic, 1)
        describe(producer, f"{line} described")
    producer.init(f"{said} anew")
    producer.send(f"{said} new record", ADDS, topic, 0)
    producer.end(f"{said} new commit", BUMPS, commit=True)
    producer.stage.until(lambda: is_complete(producer))


def ends(producer: Producer, said: str, topic: Topic) -> None:
    old = producer.id, producer.epoch
    for version in end_txn.VERSIONS:
        for commit in (True, False):
            word = "commit" if commit else "abort"
            producer.end(f"{said} {word} v{version}", version, commit=commit)
            producer.id, producer.epoch = old
    producer.stage.until(lambda: is_complete(producer))
    describe(producer, f"{said} ended")
    producer.init(f"{said} init when it has ended", expected=True)


def comes_again(producer: Producer, said: str, topic: Topic) -> None:
    old = producer.id, producer.epoch
    for version in range(3, 6):
        producer.init(f"{said} init v{version}", version, expected=True)
        producer.id, producer.epoch = old
    describe(producer, f"{said} initialized")
    producer.init(f"{said} init anew")


@contextmanager
def first_version(stage: Stage) -> Iterator[None]:
    set_version(stage, 1, SAFE_DOWNGRADE)
    try:
        yield
    finally:
        set_version(stage, 2, UPGRADE)


def set_version(stage: Stage, level: int, kind: int) -> None:
    update = FeatureUpdateKey("transaction.version", level, upgrade_type=kind)
    request = UpdateFeaturesRequest(30_000, [update])
    answer: Any = stage.connection.ask(update_features, 1, request)
    assert answer.error_code == 0, answer
    stage.until(lambda: finalized(stage) == level)


def finalized(stage: Stage) -> int:
    answer: Any = stage.connection.ask(api_versions, 3, ApiVersionsRequest("c", "1"))
    levels = {one.name: one.max_version_level for one in answer.finalized_features}
    return int(levels.get("transaction.version", 0))


def offsets_in_the_last_epoch(stage: Stage) -> None:
    with_past(stage)
    topic = stage.topic("worn-offsets")
    for version in txn_offset_commit.VERSIONS:
        producer = worn(stage, f"worn-offsets-{version}")
        old, group = (producer.id, producer.epoch), f"worn-offsets-{version}"
        if version < 5:
            add_offsets(producer, None, min(version, 4), group)
        producer.offsets(f"v{version} commit", version, topic.name, group=group)
        last = LAST_FOR_CLIENTS + 1
        producer.offsets(f"v{version} last epoch", version, topic.name, group=group, epoch=last)
        producer.end(f"v{version} ends", BUMPS if version == 5 else 4, commit=True)
        stage.until(lambda group=group: is_stable(stage, group, topic))  # type: ignore[misc]
        stage.until(lambda producer=producer: is_complete(producer))  # type: ignore[misc]
        stage.ask(f"v{version} fetched", offset_fetch, 9, fetch(9, group, topic, 0))
        new, (producer.id, producer.epoch) = (producer.id, producer.epoch), old
        producer.offsets(f"v{version} late", version, topic.name, group=group, offset=6)
        producer.offsets(f"v{version} late v5", 5, topic.name, group=group, offset=6)
        producer.id, producer.epoch = new
        producer.init(f"v{version} init", expected=True)
        producer.offsets(f"v{version} anew", 5, topic.name, group=group, offset=7)
        producer.end(f"v{version} ends anew", BUMPS, commit=True)


def killed_before_the_end(stage: Stage) -> None:
    """The decision was kept, with the id that comes after; the markers were not written yet."""
    for number, commit in enumerate((True, False)):
        word = "commit" if commit else "abort"
        producer = worn(stage, f"worn-prepares-{word}")
        producer.seen.append(NEXT_IDS + number)
        stage.until(lambda producer=producer: is_complete(producer))  # type: ignore[misc]
        describe(producer, f"{word}: described")
        old = producer.id, producer.epoch
        producer.end(f"{word}: otherwise", BUMPS, commit=not commit)
        producer.end(f"{word}: again", BUMPS, commit=commit)
        producer.id, producer.epoch = old
        producer.init(f"{word}: init", expected=True)
    producer = worn(stage, "worn-prepares-fence")
    stage.until(lambda: is_complete(producer))
    describe(producer, "fence: described")
    producer.init("fence: init", expected=True)
    producer.init("fence: anew")


STORIES = (
    the_last_epoch_of_clients,
    a_new_producer_comes,
    taken_over_while_it_is_open,
    time_is_up,
    with_transaction_version_1,
    offsets_in_the_last_epoch,
    killed_before_the_end,
)
