"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn, WriteTxnMarkers,
DescribeTransactions, ListTransactions, and what Produce and Fetch say in a transaction."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from headrace.wire.protocol.messages import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    list_transactions,
    offset_fetch,
    produce,
    txn_offset_commit,
    write_txn_markers,
)
from headrace.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
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
from headrace.wire.protocol.messages.end_txn import EndTxnRequest
from headrace.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from headrace.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from headrace.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from headrace.wire.protocol.messages.list_transactions import ListTransactionsRequest
from headrace.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headrace.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headrace.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.conformance.batches import R, build
from tests.conformance.stage import Stage, Topic
from tests.conformance.stories.asking import (
    fetch_request,
    fetch_topic,
    from_offset,
    produce_request,
)

READ_COMMITTED = 1
CONCURRENT = 51
BUMPS = 5  # EndTxn from which on each end raises the epoch
ADDS = 12  # Produce from which on the partition is added


@dataclass(slots=True)
class Producer:
    """A transactional producer; ids are numbered as they come, so that both brokers agree."""

    stage: Stage
    transactional_id: str
    timeout_ms: int = 60_000
    id: int = -1
    epoch: int = -1
    seen: list[int] = field(default_factory=list)

    def init(self, line: str | None = None, version: int = 5, *, expected: bool = False) -> Any:
        who = (self.id, self.epoch) if expected else (-1, -1)
        request = InitProducerIdRequest(self.transactional_id, self.timeout_ms, *who)
        answer = self.ask(line, init_producer_id, version, request)
        if answer.error_code == 0:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer

    def ask(self, line: str | None, api: Any, version: int, request: Any) -> Any:
        """What answers depend on the time it takes to write markers is asked again."""
        deadline = time.monotonic() + 10
        while True:
            answer: Any = self.stage.connection.ask(api, version, request)
            if CONCURRENT not in codes(answer) or time.monotonic() > deadline:
                break
            time.sleep(0.02)
        if line is not None:
            self.keep(line, answer)
        return answer

    def keep(self, line: str, answer: Any) -> None:
        found = getattr(answer, "producer_id", None)
        self.stage.keep(line, answer)
        if found is not None and found >= 0:
            if found not in self.seen:
                self.seen.append(found)
            self.stage.answers[line]["producer_id"] = f"id {self.seen.index(found)}"

    def end(self, line: str | None, version: int, *, commit: bool) -> Any:
        request = EndTxnRequest(self.transactional_id, self.id, self.epoch, commit)
        answer = self.ask(line, end_txn, version, request)
        if answer.error_code == 0 and version >= BUMPS:
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return answer

    def add(self, line: str | None, version: int, *topics: tuple[str, list[int]]) -> Any:
        named = [AddPartitionsToTxnTopic(*topic) for topic in topics]
        who = (self.transactional_id, self.id, self.epoch)
        if version >= 4:
            one = AddPartitionsToTxnTransaction(*who, False, named)
            request = AddPartitionsToTxnRequest([one])
        else:
            request = AddPartitionsToTxnRequest([], *who, named)
        return self.ask(line, add_partitions_to_txn, version, request)

    def send(self, line: str | None, version: int, topic: Topic, sequence: int, **how: Any) -> Any:
        transactional_id = how.pop("transactional_id", self.transactional_id)
        partition = how.pop("partition", 0)
        settings = {
            "producer_id": self.id,
            "producer_epoch": self.epoch,
            "base_sequence": sequence,
            "attributes": 0x10,
        } | how
        request = produce_request(
            version,
            topic,
            build(R(), **settings),
            partition=partition,
            transactional_id=transactional_id,
        )
        return self.ask(line, produce, version, request)

    def offsets(self, line: str | None, version: int, topic: str, **how: Any) -> Any:
        part = TxnOffsetCommitRequestPartition(
            how.pop("partition", 0), how.pop("offset", 5), -1, how.pop("note", "")
        )
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            how.pop("group", "txn-group"),
            self.id,
            how.pop("epoch", self.epoch),
            how.pop("generation", -1),
            how.pop("member", ""),
            how.pop("instance", None),
            [TxnOffsetCommitRequestTopic(topic, [part] * how.pop("times", 1))],
        )
        return self.ask(line, txn_offset_commit, version, request)


def codes(answer: Any) -> set[int]:
    """Every error code in an answer."""
    found: set[int] = set()
    slots = getattr(type(answer), "__slots__", ())
    for name in slots:
        value = getattr(answer, name)
        if name.endswith("error_code"):
            found.add(value)
        elif isinstance(value, list):
            for element in value:
                found |= codes(element)
    return found


def with_coordinator(stage: Stage, *ids: str) -> None:
    def is_there(kind: int, key: str) -> bool:
        request = FindCoordinatorRequest(key, kind, [key])
        answer: Any = stage.connection.ask(find_coordinator, 4, request)
        return bool(answer.coordinators[0].error_code == 0)

    stage.until(lambda: is_there(0, "txn-group"), 60)
    for one in ids:
        stage.until(lambda one=one: is_there(1, one), 60)  # type: ignore[misc]


def ready(stage: Stage, transactional_id: str, **how: Any) -> Producer:
    """A producer with an identity; Apache's coordinator takes its time to load."""
    with_coordinator(stage, transactional_id)
    producer = Producer(stage, transactional_id, **how)
    stage.until(lambda: producer.init().error_code == 0, 60)
    producer.seen.append(producer.id)
    return producer


def identities(stage: Stage) -> None:
    producer = ready(stage, "identities")
    for version in init_producer_id.VERSIONS:
        producer.init(f"v{version} again")
        if version >= 3:
            producer.init(f"v{version} next epoch", version, expected=True)
            producer.epoch -= 1
            producer.init(f"v{version} answer was lost", version, expected=True)
            right = producer.id, producer.epoch
            producer.epoch -= 2
            producer.init(f"v{version} epoch of before", version, expected=True)
            producer.epoch = right[1] + 3
            producer.init(f"v{version} epoch of the future", version, expected=True)
            producer.id, producer.epoch = right[0] + 1000, right[1]
            producer.init(f"v{version} another id", version, expected=True)
            producer.id, producer.epoch = right
    fresh = Producer(stage, "identities-unused", id=9_999_999, epoch=7)
    with_coordinator(stage, "identities-unused")
    fresh.init("unknown id that says who it was", 5, expected=True)


def ends_before_kip_890(stage: Stage) -> None:
    topic = stage.topic("txn-ends-1", partitions=2)
    for version in range(0, BUMPS):
        producer = ready(stage, f"ends-{version}")

        def line(what: str, version: int = version) -> str:
            return f"v{version} {what}"

        producer.end(line("commit of nothing"), version, commit=True)
        producer.end(line("abort of nothing"), version, commit=False)
        producer.add(None, 3, (topic.name, [0]))
        producer.send(line("record"), 10, topic, 0)
        producer.end(line("commit"), version, commit=True)
        producer.end(line("commit again"), version, commit=True)
        producer.end(line("abort after commit"), version, commit=False)
        producer.add(None, 3, (topic.name, [1]))
        producer.end(line("abort"), version, commit=False)
        producer.end(line("abort again"), version, commit=False)
        producer.end(line("commit after abort"), version, commit=True)
        refused_ends(producer, line, version)


def refused_ends(producer: Producer, line: Any, version: int) -> None:
    right = producer.id, producer.epoch
    for what, who in {
        "old epoch": (right[0], right[1] - 1),
        "future epoch": (right[0], right[1] + 1),
        "far future epoch": (right[0], right[1] + 9),
        "another producer": (right[0] + 1000, right[1]),
    }.items():
        for commit in (True, False):
            producer.id, producer.epoch = who
            word = "commit" if commit else "abort"
            producer.end(line(f"{what}, {word}"), version, commit=commit)
            producer.id, producer.epoch = right
    stranger = Producer(producer.stage, f"{producer.transactional_id}-stranger", 1, 5, 0)
    with_coordinator(producer.stage, stranger.transactional_id)
    stranger.end(line("unknown id"), version, commit=True)
    nameless = Producer(producer.stage, "", 1, 5, 0)
    nameless.end(line("empty id"), version, commit=True)


def ends_since_kip_890(stage: Stage) -> None:
    topic = stage.topic("txn-ends-2", partitions=2)
    producer = ready(stage, "ends-5")
    producer.end("commit of nothing", BUMPS, commit=True)
    producer.end("abort of nothing", BUMPS, commit=False)
    producer.send("record", ADDS, topic, 0)
    before = producer.epoch
    producer.end("commit", BUMPS, commit=True)
    for commit in (True, False):
        word = "commit" if commit else "abort"
        after, producer.epoch = producer.epoch, before
        producer.end(f"{word} again after commit", BUMPS, commit=commit)
        producer.epoch = after
    producer.end("commit of nothing after commit", BUMPS, commit=True)
    producer.send("record to abort", ADDS, topic, 0)
    before = producer.epoch
    producer.end("abort", BUMPS, commit=False)
    for commit in (True, False):
        word = "commit" if commit else "abort"
        after, producer.epoch = producer.epoch, before
        producer.end(f"{word} again after abort", BUMPS, commit=commit)
        producer.epoch = after
    producer.end("commit of nothing after abort", BUMPS, commit=True)
    producer.end("abort of nothing after abort", BUMPS, commit=False)
    refused_ends(producer, lambda what: what, BUMPS)


def adding_partitions(stage: Stage) -> None:
    topic = stage.topic("txn-adding", partitions=3)
    for version in range(0, 4):
        producer = ready(stage, f"adding-{version}")

        def line(what: str, version: int = version) -> str:
            return f"v{version} {what}"

        producer.add(line("two"), version, (topic.name, [0, 1]))
        producer.add(line("the same"), version, (topic.name, [1]))
        producer.add(line("unknown among them"), version, (topic.name, [2, 9]), ("never-was", [0]))
        producer.add(line("internal topic"), version, ("__consumer_offsets", [0]))
        producer.add(line("nothing"), version)
        right = producer.id, producer.epoch
        producer.epoch += 1
        producer.add(line("future epoch"), version, (topic.name, [0]))
        producer.epoch -= 2
        producer.add(line("old epoch"), version, (topic.name, [0]))
        producer.id, producer.epoch = right[0] + 1000, right[1]
        producer.add(line("another producer"), version, (topic.name, [0]))
        producer.id, producer.epoch = right
        producer.end(None, 4, commit=False)
        nobody = Producer(stage, f"adding-{version}-nobody", 1, 5, 0)
        with_coordinator(stage, nobody.transactional_id)
        nobody.add(line("unknown id"), version, (topic.name, [0]))
        Producer(stage, "", 1, 5, 0).add(line("empty id"), version, (topic.name, [0]))


def brokers_ask_whether_partitions_are_added(stage: Stage) -> None:
    topic = stage.topic("txn-verifying", partitions=3)
    for version in (4, 5):
        producer = ready(stage, f"verifying-{version}")

        def ask(
            line: str,
            producer: Producer,
            *partitions: int,
            version: int = version,
            verify: bool = True,
            name: str = topic.name,
            epoch: int = 0,
        ) -> None:
            one = AddPartitionsToTxnTransaction(
                producer.transactional_id,
                producer.id,
                producer.epoch + epoch,
                verify,
                [AddPartitionsToTxnTopic(name, list(partitions))],
            )
            request = AddPartitionsToTxnRequest([one])
            producer.ask(f"v{version} {line}", add_partitions_to_txn, version, request)

        ask("nothing added", producer, 0)
        ask("adding", producer, 0, 1, verify=False)
        ask("some added", producer, 0, 1, 2)
        ask("unknown partition", producer, 0, 7)
        ask("old epoch", producer, 0, epoch=-1)
        ask("future epoch", producer, 0, epoch=1)
        producer.end(None, 5 if version == 5 else 4, commit=True)
        ask("after the end", producer, 0)
        ask("unknown id", Producer(stage, f"verifying-{version}", 1, 5, 0), 0)


def many_transactions_at_once(stage: Stage) -> None:
    topic = stage.topic("txn-many", partitions=2)
    first, second = ready(stage, "many-1"), ready(stage, "many-2")
    request = AddPartitionsToTxnRequest(
        [
            AddPartitionsToTxnTransaction(
                one.transactional_id,
                one.id,
                one.epoch,
                False,
                [AddPartitionsToTxnTopic(topic.name, [index])],
            )
            for index, one in enumerate((first, second))
        ]
    )
    for version in (4, 5):
        first.ask(f"v{version}", add_partitions_to_txn, version, request)
    for one in (first, second):
        one.end(None, 4, commit=True)


def records_of_transactions(stage: Stage) -> None:
    """What a partition says to a record, by the version of the request."""
    topic = stage.topic("txn-records", partitions=2)
    for version in range(3, ADDS + 2):
        producer = ready(stage, f"records-{version}")
        adds = version >= ADDS

        def line(what: str, version: int = version) -> str:
            return f"v{version} {what}"

        if not adds:
            producer.send(line("not added"), version, topic, 0)
            producer.add(None, 3, (topic.name, [0]))
        producer.send(line("first"), version, topic, 0)
        producer.send(line("next"), version, topic, 1)
        producer.send(line("the same again"), version, topic, 1)
        producer.send(line("gap"), version, topic, 5)
        producer.send(line("plain record"), version, topic, 2, attributes=0)
        producer.send(line("without id"), version, topic, 2, transactional_id=None)
        producer.send(line("future epoch"), version, topic, 0, producer_epoch=producer.epoch + 1)
        producer.send(line("old epoch"), version, topic, 2, producer_epoch=producer.epoch - 1)
        producer.send(line("another producer"), version, topic, 0, producer_id=producer.id + 5000)
        old = producer.epoch
        producer.end(None, BUMPS if adds else 4, commit=version % 2 == 0)
        stage.until(lambda producer=producer: is_complete(producer))  # type: ignore[misc]
        producer.send(line("late"), version, topic, 2, producer_epoch=old)
        producer.send(line("late elsewhere"), version, topic, 0, partition=1, producer_epoch=old)
        if adds:
            producer.send(line("begins with a gap"), version, topic, 3)
            producer.send(line("begins"), version, topic, 0)
            producer.end(None, BUMPS, commit=True)
            stage.until(lambda producer=producer: is_complete(producer))  # type: ignore[misc]


def is_complete(producer: Producer) -> bool:
    """Every marker is written; Apache's come after the answer."""
    request = DescribeTransactionsRequest([producer.transactional_id])
    answer: Any = producer.stage.connection.ask(describe_transactions, 0, request)
    return bool(answer.transaction_states[0].transaction_state.startswith("Complete"))


def reading_committed_records(stage: Stage) -> None:
    topic = stage.topic("txn-reading")
    first, second = ready(stage, "reading-1"), ready(stage, "reading-2")
    lines = 0

    def look(what: str, offset: int = 0) -> None:
        nonlocal lines
        for version in (4, 11, 13, 17):
            wanted = fetch_topic(version, topic, from_offset(offset))
            for isolation in (0, READ_COMMITTED):
                request = fetch_request(wanted, isolation_level=isolation)
                line = f"{what} v{version} {'committed' if isolation else 'all'}"
                answer = stage.connection.ask(fetch, version, request)
                stage.keep(line, answer)
                forget_ids(stage.answers[line])
        for isolation in (0, READ_COMMITTED):
            for moment in (-1, -2, -3, 0):
                wanted_offset = ListOffsetsPartition(0, -1, moment)
                asked = ListOffsetsRequest(
                    -1, isolation, [ListOffsetsTopic(topic.name, [wanted_offset])]
                )
                stage.ask(f"{what} offset {moment}, {isolation}", list_offsets, 8, asked)

    first.send(None, ADDS, topic, 0)
    look("one open")
    second.send(None, ADDS, topic, 0)
    second.send(None, ADDS, topic, 1)
    first.end(None, BUMPS, commit=False)
    stage.until(lambda: stable_offset(stage, topic) == 1)
    look("one aborted, one open")
    second.end(None, BUMPS, commit=True)
    stage.until(lambda: stable_offset(stage, topic) == 5)
    look("all decided")
    look("from the middle", 2)
    look("from the end", 5)


def forget_ids(answer: Any) -> None:
    """Producer ids differ; the order in which they appear does not."""
    if isinstance(answer, dict):
        for key, value in list(answer.items()):
            if key == "producer_id" and isinstance(value, int) and value >= 0:
                answer[key] = "some id"
            elif key == "producer" and isinstance(value, tuple | list):
                answer[key] = ["some id", *value[1:]]
            elif key == "aborted_transactions" and isinstance(value, dict):
                answer[key] = sorted(one["first_offset"] for one in value.values())
            else:
                forget_ids(value)
    elif isinstance(answer, list):
        for element in answer:
            forget_ids(element)


def stable_offset(stage: Stage, topic: Topic) -> int:
    asked = ListOffsetsRequest(
        -1, READ_COMMITTED, [ListOffsetsTopic(topic.name, [ListOffsetsPartition(0, -1, -1)])]
    )
    answer: Any = stage.connection.ask(list_offsets, 8, asked)
    return int(answer.topics[0].partitions[0].offset)


def offsets_of_transactions(stage: Stage) -> None:
    topic = stage.topic("txn-offsets", partitions=2)
    for version in range(0, 6):
        producer = ready(stage, f"offsets-{version}")
        group = f"txn-group-{version}"
        adds = version >= 5

        def line(what: str, version: int = version) -> str:
            return f"v{version} {what}"

        def fetched(what: str, group: str = group, version: int = version) -> None:
            for stable in (False, True):
                wanted = OffsetFetchRequestGroup(group, None, -1, None)
                wanted.topics = [OffsetFetchRequestTopics(topic.name, bytes(16), [0])]
                request = OffsetFetchRequest(groups=[wanted], require_stable=stable)
                stage.ask(f"v{version} {what}, stable {stable}", offset_fetch, 9, request)

        if not adds:
            producer.offsets(line("not added"), version, topic.name, group=group)
            add_offsets(producer, line("add"), min(version, 4), group)
        producer.offsets(line("commit"), version, topic.name, group=group)
        fetched("while open")
        producer.offsets(line("unknown topic"), version, "never-was", group=group)
        producer.offsets(line("unknown partition"), version, topic.name, group=group, partition=8)
        producer.offsets(line("old epoch"), version, topic.name, group=group, epoch=-1)
        future = producer.epoch + 1
        producer.offsets(line("future epoch"), version, topic.name, group=group, epoch=future)
        if version >= 3:
            producer.offsets(line("a generation"), version, topic.name, group=group, generation=4)
            producer.offsets(line("a member"), version, topic.name, group=group, member="somebody")
        producer.offsets(line("empty group"), version, topic.name, group="")
        producer.end(None, BUMPS if adds else 4, commit=True)
        stage.until(lambda group=group: is_stable(stage, group, topic))  # type: ignore[misc]
        fetched("after commit")
    producer = ready(stage, "offsets-refused")
    for version in range(0, 5):
        producer.epoch += 1
        add_offsets(producer, f"add v{version} future epoch", version, "txn-group")
        producer.epoch -= 1
        producer.id += 1000
        add_offsets(producer, f"add v{version} another producer", version, "txn-group")
        producer.id -= 1000


def add_offsets(producer: Producer, line: str | None, version: int, group: str) -> None:
    request = AddOffsetsToTxnRequest(producer.transactional_id, producer.id, producer.epoch, group)
    producer.ask(line, add_offsets_to_txn, version, request)


def is_stable(stage: Stage, group: str, topic: Topic) -> bool:
    wanted = OffsetFetchRequestGroup(group, None, -1, None)
    wanted.topics = [OffsetFetchRequestTopics(topic.name, bytes(16), [0])]
    request = OffsetFetchRequest(groups=[wanted], require_stable=True)
    answer: Any = stage.connection.ask(offset_fetch, 9, request)
    return bool(answer.groups[0].topics[0].partitions[0].error_code == 0)


def a_new_producer_takes_over(stage: Stage) -> None:
    topic = stage.topic("txn-taken-over")
    for adds in (False, True):
        name = f"taken-over-{'2' if adds else '1'}"
        old = ready(stage, name)
        if not adds:
            old.add(None, 3, (topic.name, [0]))
        version = ADDS if adds else 10
        old.send(f"{name} record", version, topic, 0)
        new = Producer(stage, name, seen=old.seen)
        first = InitProducerIdRequest(name, 60_000)
        new.keep(f"{name} first try", stage.connection.ask(init_producer_id, 5, first))
        new.init(f"{name} second try")
        old.send(f"{name} zombie record", version, topic, 1)
        old.end(f"{name} zombie commit", BUMPS if adds else 4, commit=True)
        old.init(f"{name} zombie epoch", expected=True)
        if not adds:
            new.add(None, 3, (topic.name, [0]))
        new.send(f"{name} new record", version, topic, 0)
        new.end(f"{name} new commit", BUMPS if adds else 4, commit=True)


def markers_by_hand(stage: Stage) -> None:
    topic = stage.topic("txn-markers", partitions=2)
    producer = ready(stage, "markers")
    producer.init()
    producer.send(None, ADDS, topic, 0)

    def write(
        line: str, version: int, *partitions: int, name: str = topic.name, **how: Any
    ) -> None:
        marker = WritableTxnMarker(
            how.get("producer_id", producer.id),
            how.get("epoch", producer.epoch),
            False,
            [WritableTxnMarkerTopic(name, list(partitions))],
            how.get("coordinator_epoch", 0),
            how.get("transaction_version", 0),
        )
        answer = stage.connection.ask(write_txn_markers, version, WriteTxnMarkersRequest([marker]))
        stage.keep(line, answer)
        forget_keys(stage.answers[line], "markers")

    def described(line: str) -> None:
        request = DescribeProducersRequest([TopicRequest(topic.name, [0])])
        stage.keep(line, stage.connection.ask(describe_producers, 0, request))
        for part in stage.answers[line]["topics"][topic.name]["partitions"].values():
            part["active_producers"] = [
                {k: v for k, v in one.items() if k not in ("last_timestamp", "producer_id")}
                for one in part["active_producers"].values()
            ]

    described("open")
    for version in (1, 2):
        write(f"v{version} old epoch", version, 0, epoch=producer.epoch - 1)
        write(f"v{version} unknown partition", version, 7)
        write(f"v{version} unknown topic", version, 0, name="never-was")
    write("v2 same epoch, must be raised", 2, 0, transaction_version=2)
    write("v1 ends it", 1, 0, 1, coordinator_epoch=3)
    described("ended")
    write("v1 old coordinator", 1, 0, coordinator_epoch=2)
    write("v2 old coordinator", 2, 0, coordinator_epoch=2)
    write("v2 again", 2, 0, coordinator_epoch=3, transaction_version=2)
    write("v1 unknown producer", 1, 1, producer_id=producer.id + 7000)
    stage.ask("no markers", write_txn_markers, 1, WriteTxnMarkersRequest([]))


def forget_keys(answer: Any, name: str) -> None:
    """Elements that are named by producer id, in their order."""
    answer[name] = [
        {key: value for key, value in one.items() if key != "producer_id"}
        for one in (answer[name].values() if isinstance(answer[name], dict) else answer[name])
    ]


def describing_and_listing(stage: Stage) -> None:
    topic = stage.topic("txn-described", partitions=2)
    producer = ready(stage, "described", timeout_ms=45_000)

    def describe(line: str, *ids: str) -> None:
        request = DescribeTransactionsRequest(list(ids))
        answer: Any = stage.connection.ask(describe_transactions, 0, request)
        for found in answer.transaction_states:
            found.transaction_start_time_ms = min(found.transaction_start_time_ms, 1)
            found.producer_id = min(found.producer_id, 0)
            for each in found.topics:
                each.partitions.sort()  # Apache's come as they lie in a hash table
        stage.keep(line, answer)

    describe("empty", "described")
    producer.send(None, ADDS, topic, 0)
    producer.send(None, ADDS, topic, 0, partition=1)
    describe("ongoing", "described")
    producer.end(None, BUMPS, commit=True)
    stage.until(lambda: is_complete(producer))
    describe("committed", "described")
    with_coordinator(stage, "described-not")
    describe("unknown", "described-not")
    describe("empty name", "")
    describe("none")

    def listed(line: str, version: int, **filters: Any) -> None:
        request = ListTransactionsRequest(**filters)
        answer: Any = stage.connection.ask(list_transactions, version, request)
        mine = [one for one in answer.transaction_states if one.producer_id == producer.id]
        answer.transaction_states = []
        stage.keep(line, answer)
        stage.answers[line]["mine"] = [
            (one.transactional_id, one.transaction_state) for one in mine
        ]

    for version in (0, 1, 2):
        listed(f"v{version} all", version)
        listed(f"v{version} by id", version, producer_id_filters=[producer.id])
        listed(f"v{version} by another id", version, producer_id_filters=[producer.id + 1])
        listed(f"v{version} by state", version, state_filters=["CompleteCommit"])
        listed(f"v{version} by other states", version, state_filters=["Ongoing", "Dead"])
        listed(f"v{version} by no state", version, state_filters=["Sleeping", "CompleteCommit"])
    listed("by duration", 1, duration_filter=0)
    listed("by a long duration", 1, duration_filter=10_000_000)
    for pattern in (
        "",
        "desc.*",
        "desc",
        ".*ibe[a-d]",
        "(",
        "(?=d).*",
        r"\\bdescribed\\b",
        "a{1001}",
    ):
        listed(f"by pattern {pattern!r}", 2, transactional_id_pattern=pattern)


STORIES = (
    identities,
    ends_before_kip_890,
    ends_since_kip_890,
    adding_partitions,
    brokers_ask_whether_partitions_are_added,
    many_transactions_at_once,
    records_of_transactions,
    reading_committed_records,
    offsets_of_transactions,
    a_new_producer_takes_over,
    markers_by_hand,
    describing_and_listing,
)
