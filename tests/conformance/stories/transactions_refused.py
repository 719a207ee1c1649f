"""Transactions: what is refused to ids that nobody has, when time is up, to absurd requests."""

from __future__ import annotations

from typing import Any

from headrace.wire.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    find_coordinator,
    init_producer_id,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from headrace.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headrace.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from headrace.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headrace.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.protocol.messages.produce import PartitionProduceData, ProduceRequest
from headrace.wire.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from headrace.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.conformance.batches import TRANSACTIONAL, R, build
from tests.conformance.stage import Stage
from tests.conformance.stories.asking import produce_request, produce_topic
from tests.conformance.stories.transactions import (
    ADDS,
    BUMPS,
    Producer,
    add_offsets,
    forget_keys,
    is_complete,
    ready,
    with_coordinator,
)

ABORTS_AFTER_MS = 4_000


def finding_the_coordinator(stage: Stage) -> None:
    with_coordinator(stage, "found")
    for version in find_coordinator.VERSIONS[1:]:

        def ask(line: str, *keys: str, kind: int = 1, version: int = version) -> None:
            request = FindCoordinatorRequest(keys[0] if keys else "", kind, list(keys))
            stage.ask(f"v{version} {line}", find_coordinator, version, request)

        ask("a transactional id", "found")
        ask("no name", "")
        ask("a negative kind", "found", kind=-1)
        if version >= 4:
            ask("two", "found", "", "other")
            ask("the same twice", "found", "found")
            ask("nothing")


def ids_that_nobody_has(stage: Stage) -> None:
    topic = stage.topic("txn-nobody")
    name = "txn-nobody"
    with_coordinator(stage, name)
    nobody, nameless = Producer(stage, name, 1, 5, 0), Producer(stage, "", 1, 5, 0)
    for who, producer in (("nobody", nobody), ("empty id", nameless)):
        for version in add_offsets_to_txn.VERSIONS:
            add_offsets(producer, f"{who}: add offsets v{version}", version, "txn-group")
        for version in txn_offset_commit.VERSIONS:
            producer.offsets(f"{who}: offsets v{version}", version, topic.name)
        for version in produce.VERSIONS:
            producer.send(f"{who}: record v{version}", version, topic, 0)
        for version in (4, 5):
            for verify in (False, True):
                named = [AddPartitionsToTxnTopic(topic.name, [0])]
                wanted = AddPartitionsToTxnTransaction(
                    producer.transactional_id, 5, 0, verify, named
                )
                line = f"{who}: {'ask' if verify else 'add'} v{version}"
                request = AddPartitionsToTxnRequest([wanted])
                producer.ask(line, add_partitions_to_txn, version, request)
    stage.ask(
        "described",
        describe_transactions,
        0,
        DescribeTransactionsRequest([name, ""]),
    )


def requests_about_nothing(stage: Stage) -> None:
    producer = ready(stage, "txn-nothing")
    for version in (4, 5):
        for verify in (False, True):
            for line, topics in {
                "no topics": [],
                "a topic that is not there": [AddPartitionsToTxnTopic("never-was", [0])],
                "an internal topic": [AddPartitionsToTxnTopic("__consumer_offsets", [0])],
            }.items():
                wanted = AddPartitionsToTxnTransaction(
                    producer.transactional_id, producer.id, producer.epoch, verify, topics
                )
                said = f"{'ask' if verify else 'add'} v{version} {line}"
                request = AddPartitionsToTxnRequest([wanted])
                producer.ask(said, add_partitions_to_txn, version, request)
        producer.end(None, 4, commit=False)
    for version in txn_offset_commit.VERSIONS:
        who = (producer.transactional_id, "txn-group", producer.id, producer.epoch)
        request = TxnOffsetCommitRequest(*who)
        producer.ask(f"no offsets v{version}", txn_offset_commit, version, request)
    for version in add_offsets_to_txn.VERSIONS:
        add_offsets(producer, f"no group v{version}", version, "")
    producer.end(None, 4, commit=False)


def offsets_that_are_refused(stage: Stage) -> None:
    """Notes that are too long, and more of them than a batch holds."""
    topic = stage.topic("txn-notes")
    for version in txn_offset_commit.VERSIONS:
        producer = ready(stage, f"txn-notes-{version}")
        if version < 5:
            add_offsets(producer, None, 3, "txn-notes")
        how = {"group": "txn-notes"}
        long = "n" * 4_097
        producer.offsets(f"v{version} a long note", version, topic.name, note=long, **how)
        answer = producer.offsets(None, version, topic.name, note="n" * 4_096, times=300, **how)
        codes = sorted({part.error_code for part in answer.topics[0].partitions})
        stage.keep(f"v{version} 1.2 MB of notes", codes)
        producer.offsets(f"v{version} a note", version, topic.name, note="n", **how)
        producer.end(None, BUMPS if version == 5 else 4, commit=False)


def time_is_up(stage: Stage) -> None:
    """The coordinator aborts what was left open for too long; its producer is fenced."""
    topic = stage.topic("txn-time-is-up", partitions=2)
    writers: dict[int, Producer] = {}
    for version in (3, 10, 11, 12, 13):
        writers[version] = begun = ready(stage, f"time-is-up-{version}", timeout_ms=ABORTS_AFTER_MS)
        if version < ADDS:
            begun.add(None, 3, (topic.name, [0]))
        begun.send(f"v{version} in time", version, topic, 0)
    older = ready(stage, "time-is-up, older", timeout_ms=ABORTS_AFTER_MS)
    older.add(None, 3, (topic.name, [0]))
    newer = ready(stage, "time-is-up, newer", timeout_ms=ABORTS_AFTER_MS)
    newer.offsets("newer in time", 5, topic.name, group="txn-time-is-up")
    for producer in (*writers.values(), older, newer):
        stage.until(lambda producer=producer: is_complete(producer))  # type: ignore[misc]
    for version, late in writers.items():
        late.send(f"v{version} late", version, topic, 1)
        late.send(f"v{version} late elsewhere", version, topic, 0, partition=1)
    fenced("older", older, topic.name)
    fenced("newer", newer, topic.name)


def fenced(who: str, producer: Producer, topic: str) -> None:
    """Everything a producer can ask after its transaction was aborted over its head."""
    before = producer.id, producer.epoch
    for version in end_txn.VERSIONS:
        for commit in (True, False):
            word = "commit" if commit else "abort"
            producer.end(f"{who} {word} v{version}", version, commit=commit)
            producer.id, producer.epoch = before
    for version in range(4):
        producer.add(f"{who} add v{version}", version, (topic, [1]))
    for version in add_offsets_to_txn.VERSIONS:
        add_offsets(producer, f"{who} add offsets v{version}", version, "txn-time-is-up")
    for version in txn_offset_commit.VERSIONS:
        producer.offsets(f"{who} offsets v{version}", version, topic, group="txn-time-is-up")
    for version in range(3, 6):
        producer.init(f"{who} init v{version}", version, expected=True)
        producer.id, producer.epoch = before
    producer.init(f"{who} begins anew")


def taken_over_and_not_yet_taken(stage: Stage) -> None:
    """A new producer has come, the old one's transaction is aborted; it has not come again yet."""
    topic = stage.topic("txn-not-yet")
    for version in (10, 12):
        old = ready(stage, f"not-yet-{version}")
        if version < ADDS:
            old.add(None, 3, (topic.name, [0]))
        old.send(f"v{version} record", version, topic, 0)
        request = InitProducerIdRequest(old.transactional_id, 60_000)
        stage.connection.ask(init_producer_id, 5, request)
        stage.until(lambda old=old: is_complete(old))  # type: ignore[misc]
        before = old.id, old.epoch
        for _ in range(2):
            old.init(f"v{version} old one, turn {_}", expected=True)
            old.id, old.epoch = before
        old.end(f"v{version} old one ends", BUMPS if version >= ADDS else 4, commit=True)
        old.init(f"v{version} new one")
        old.id, old.epoch = before
        old.init(f"v{version} old one, too late", expected=True)


def absurd_timeouts(stage: Stage) -> None:
    for version in init_producer_id.VERSIONS:
        for timeout_ms in (-(2**31), -1, 0, 900_001, 2**31 - 1):
            request = InitProducerIdRequest("txn-absurd", timeout_ms)
            stage.ask(f"v{version} {timeout_ms}", init_producer_id, version, request)
            request = InitProducerIdRequest(None, timeout_ms)
            line = f"v{version} {timeout_ms} without id"
            stage.ask(line, init_producer_id, version, request)
            if stage.answers[line]["producer_id"] != -1:
                stage.answers[line]["producer_id"] = "some id"
    producer = ready(stage, "txn-absurd", timeout_ms=900_000)
    producer.init("the longest")
    shortest = ready(stage, "txn-absurd-short", timeout_ms=1)
    shortest.init("the shortest")


def records_of_two(stage: Stage) -> None:
    """Produce with records of two producers, and to topics that are the broker's own."""
    topic = stage.topic("txn-two", partitions=2)
    with_coordinator(stage, "txn-two-1", "txn-two-2")
    internal = stage.learn("__consumer_offsets")
    for version in (3, 11, 12, 13):
        first, second = ready(stage, f"txn-two-1-{version}"), ready(stage, f"txn-two-2-{version}")
        if version < ADDS:
            first.add(None, 3, (topic.name, [0, 1]))
            second.add(None, 3, (topic.name, [0, 1]))
        for turn, acks in enumerate((1, 2)):
            name = first.transactional_id
            request = produce_request(
                version, topic, of(first, turn), acks=acks, transactional_id=name
            )
            stage.ask(f"v{version} acks {acks}", produce, version, request)
        data = [PartitionProduceData(index, of(one)) for index, one in enumerate((first, second))]
        request = ProduceRequest(
            first.transactional_id, -1, 10_000, [produce_topic(version, topic, data)]
        )
        stage.ask(f"v{version} two producers", produce, version, request)
        request = produce_request(
            version, internal, of(first), transactional_id=first.transactional_id
        )
        stage.ask(f"v{version} internal topic", produce, version, request)
        for one in (first, second):
            one.end(None, BUMPS if version >= ADDS else 4, commit=False)
            stage.until(lambda one=one: not is_open(one))  # type: ignore[misc]


def is_open(producer: Producer) -> bool:
    request = DescribeTransactionsRequest([producer.transactional_id])
    answer: Any = producer.stage.connection.ask(describe_transactions, 0, request)
    state = answer.transaction_states[0].transaction_state
    return state == "Ongoing" or bool(state.startswith("Prepare"))


def of(producer: Producer, sequence: int = 0) -> bytes:
    return build(
        R(),
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        base_sequence=sequence,
        attributes=TRANSACTIONAL,
    )


def markers_that_are_refused(stage: Stage) -> None:
    """Of nobody's transaction, twice in one request, with numbers that cannot be."""
    topic = stage.topic("txn-odd-markers")
    producer = ready(stage, "odd-markers")

    def write(line: str, version: int, *markers: WritableTxnMarker) -> None:
        request = WriteTxnMarkersRequest(list(markers))
        stage.keep(line, stage.connection.ask(write_txn_markers, version, request))
        forget_keys(stage.answers[line], "markers")

    def marker(name: str = topic.name, part: int = 0, **how: int) -> WritableTxnMarker:
        return WritableTxnMarker(
            how.get("producer_id", producer.id),
            how.get("epoch", producer.epoch),
            False,
            [WritableTxnMarkerTopic(name, [part])],
            how.get("coordinator_epoch", 0),
            how.get("transaction_version", 0),
        )

    for version in write_txn_markers.VERSIONS:
        write(f"v{version} nothing open", version, marker())
        write(f"v{version} negative id", version, marker(producer_id=-1))
        write(f"v{version} negative epoch", version, marker(epoch=-1))
        write(f"v{version} largest epoch", version, marker(producer_id=77_000, epoch=32_767))
        write(f"v{version} negative partition", version, marker(part=-1))
        write(f"v{version} negative coordinator", version, marker(coordinator_epoch=-5))
        write(f"v{version} bad name", version, marker("bad name"))
        write(f"v{version} twice", version, marker(), marker())
        write(f"v{version} offsets", version, marker("__consumer_offsets"))
    asked = DescribeProducersRequest([TopicRequest("txn-odd-markers", [0, 0, 5])])
    answer: Any = stage.connection.ask(describe_producers, 0, asked)
    for part in answer.topics[0].partitions:
        part.active_producers = []
    stage.keep("described", answer)


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


def sequences_that_were_refused(stage: Stage) -> None:
    """A record that came before its partition was added, and what is taken when it is."""
    topic = stage.topic("txn-refused-sequences")
    for version in (3, 10, 11, ADDS, 13):
        for first, later in ((0, 5), (2, 5), (5, 5), (5, 2)):
            producer = ready(stage, f"refused-{version}-{first}-{later}")
            line = f"v{version} {first}, {later}:"
            producer.send(f"{line} not added", version, topic, first)
            if version < ADDS:
                producer.add(None, 3, (topic.name, [0]))
            producer.send(f"{line} added", version, topic, later)
            producer.send(f"{line} the first again", version, topic, first)
            producer.send(f"{line} zero", version, topic, 0)
            producer.send(f"{line} one", version, topic, 1)
            producer.end(None, BUMPS if version >= ADDS else 4, commit=False)


STORIES = (
    finding_the_coordinator,
    ids_that_nobody_has,
    requests_about_nothing,
    offsets_that_are_refused,
    time_is_up,
    taken_over_and_not_yet_taken,
    absurd_timeouts,
    records_of_two,
    markers_that_are_refused,
    going_on_after_an_end_by_hand,
    sequences_that_were_refused,
)
