"""`headrace replay`, as somebody does it who wants it to lie, to lose or to hang."""

from __future__ import annotations

import json
import struct

import crc32c
import pytest
from confluent_kafka import Consumer, Producer

from headrace import App
from headrace.app import Message
from headrace.client.admin.groups import Groups
from headrace.client.connection import ClientSettings
from headrace.client.wire import Wire
from headrace.services.replay import topic_copy as copying_module
from headrace.services.replay.group_moves import GroupMoves
from headrace.services.replay.journal import read_journal
from headrace.services.replay.pace import Pace
from headrace.services.replay.selection import Selection
from headrace.services.replay.topic_copy import CannotCopy, Copying, CopyRequest
from headrace.wire.protocol import record_batch
from headrace.wire.protocol.messages import produce
from tests.patience import until
from tests.sockets.cli.conftest import CommandLine
from tests.sockets.cli.groups_behind import add, commit, committed, delete_before, filled


def cluster_of(headrace: CommandLine) -> ClientSettings:
    return ClientSettings({"bootstrap.servers": headrace.bootstrap})


def values(headrace: CommandLine, topic: str) -> list[int]:
    return [int(line) for line in headrace("consume", topic).splitlines()]


def begun(headrace: CommandLine, source: str, target: str) -> tuple[Copying, CopyRequest]:
    """A copy that has made one transaction of its first record."""
    cluster = cluster_of(headrace)
    copying = Copying(cluster, cluster, sleep=lambda _: None)
    request = CopyRequest(source, source, target, Selection(), by="me")
    steps = copying.copy(copying.plan(request), Pace(rate=0.5))
    assert next(steps).copied == 1
    steps.close()
    return copying, request


# ---- topics that change under a copy


def test_a_target_made_anew_ends_the_copy(headrace: CommandLine) -> None:
    filled(headrace, "anew", 1, 5)
    headrace("topics", "create", "anew-copy")
    copying, request = begun(headrace, "anew", "anew-copy")
    headrace("topics", "delete", "anew-copy", "--yes")
    headrace("topics", "create", "anew-copy")
    with pytest.raises(CannotCopy, match="anew-copy was deleted and created again"):
        copying.plan(request)


def test_a_source_made_anew_in_the_middle_gives_no_record(
    headrace: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying_module, "RECORDS_PER_TRANSACTION", 2)
    filled(headrace, "swapped", 1, 9)
    headrace("topics", "create", "swapped-copy")
    cluster = cluster_of(headrace)
    copying = Copying(cluster, cluster)
    request = CopyRequest("swapped", "swapped", "swapped-copy", Selection(), by="me")
    steps = copying.copy(copying.plan(request), Pace())
    next(steps)
    headrace("topics", "delete", "swapped", "--yes")
    headrace("topics", "create", "swapped")
    add(headrace, "swapped", 1, range(100, 120))
    with pytest.raises(CannotCopy, match="swapped was deleted and created again"):
        list(steps)
    assert values(headrace, "swapped-copy") == [0, 1]


def test_what_retention_took_before_it_was_copied_is_counted(headrace: CommandLine) -> None:
    filled(headrace, "eaten", 1, 10)
    headrace("topics", "create", "eaten-copy")
    begun(headrace, "eaten", "eaten-copy")
    delete_before(headrace, "eaten", 6)
    words = ("replay", "copy", "eaten", "--to", "eaten-copy", "--name", "eaten", "--execute")
    done = headrace.json(*words)
    assert (done["copied"], done["deleted"]) == (5, 5)
    assert values(headrace, "eaten-copy") == [0, 6, 7, 8, 9]


@pytest.mark.integration
def test_a_record_of_an_aborted_transaction_is_not_copied(headrace: CommandLine) -> None:
    headrace("topics", "create", "aborted")
    headrace("topics", "create", "aborted-copy")
    producer = Producer({"bootstrap.servers": headrace.bootstrap, "transactional.id": "t"})
    producer.init_transactions()
    for number, commits in ((1, True), (2, False), (3, True)):
        producer.begin_transaction()
        producer.produce("aborted", b"%d" % number)
        if commits:
            producer.commit_transaction()
        else:
            producer.flush()
            producer.abort_transaction()
    done = headrace.json("replay", "copy", "aborted", "--to", "aborted-copy", "--execute")
    assert (done["copied"], done["left"]) == (2, 0)
    assert values(headrace, "aborted-copy") == [1, 3]


# ---- groups


@pytest.mark.integration
def test_a_move_that_was_refused_is_not_undone_later(headrace: CommandLine) -> None:
    filled(headrace, "refused", 1, 10)
    commit(headrace, "refused-readers", "refused", 8)
    cluster = cluster_of(headrace)
    moves = GroupMoves(cluster)
    plan = moves.plan("refused-readers", {("refused", 0): 3})
    consumer = Consumer(
        {"bootstrap.servers": headrace.bootstrap, "group.id": "refused-readers",
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe(["refused"])

    def joins_late(name: str) -> None:
        """Between the look at the group and its move."""
        until(lambda: consumer.poll(0.05) is None and bool(consumer.assignment()))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Groups, "require_inactive", lambda self, name: joins_late(name))
        with pytest.raises(Exception, match="active members"):
            moves.execute(plan, by="me")
    consumer.close()
    assert read_journal(cluster).last_move("refused-readers") is None
    assert "No replay has moved" in headrace.failure("replay", "undo", "refused-readers")


@pytest.mark.integration
def test_an_undo_leaves_a_topic_that_was_made_anew_alone(headrace: CommandLine) -> None:
    filled(headrace, "new-one", 2, 20)
    filled(headrace, "old-one", 1, 20)
    commit(headrace, "both", "new-one", 10, 10)
    commit(headrace, "both", "old-one", 20)
    words = ("replay", "group", "both", "--topic", "new-one", "--topic", "old-one")
    headrace(*words, "--from-offset", "1", "--execute")
    headrace("topics", "delete", "new-one", "--yes")
    headrace("topics", "create", "new-one", "--partitions", "1")
    add(headrace, "new-one", 1, range(3))
    commit(headrace, "both", "new-one", 2)
    shown = headrace.json("replay", "undo", "both", "--execute")["partitions"]
    assert [each["why_not"] != "" for each in shown] == [True, True, False]
    assert committed(headrace, "both", "new-one") == [2]
    assert committed(headrace, "both", "old-one") == [20]
    headrace("topics", "delete", "old-one", "--yes")
    said = headrace.failure("replay", "undo", "both", "--execute")
    assert said == "Nothing of it can be undone: the topic is gone."


@pytest.mark.integration
def test_an_undo_goes_no_further_back_than_the_records_that_are_left(
    headrace: CommandLine,
) -> None:
    filled(headrace, "shrunk", 1, 20)
    commit(headrace, "shrinkers", "shrunk", 10)
    headrace("replay", "group", "shrinkers", "--topic", "shrunk", "--from-offset", "2", "--execute")
    delete_before(headrace, "shrunk", 15)
    assert "has no offset 10 any more: the nearest is 15" in headrace.notes(
        "replay", "undo", "shrinkers"
    )
    headrace("replay", "undo", "shrinkers", "--execute")
    assert committed(headrace, "shrinkers", "shrunk") == [15]


@pytest.mark.integration
def test_chosen_records_are_handled_a_second_time_under_another_name(
    headrace: CommandLine,
) -> None:
    filled(headrace, "chosen", 1, 7)
    handled: list[str] = []
    app = App(headrace.bootstrap, group="choosers", delay="off")

    @app.on("chosen")
    def handle(message: Message) -> None:
        handled.append(message.id)

    with app.running():
        until(lambda: len(handled) == 7)
        until(lambda: committed(headrace, "choosers", "chosen") == [7])
        words = ("replay", "group", "choosers", "--topic", "chosen", "--from-offset", "0")
        headrace(*words, "--key", "k3", "--execute")
        assert "--name" in headrace.failure(*words, "--key", "k3", "--execute")
        headrace(*words, "--key", "k3", "--name", "once more", "--execute")
        until(lambda: len(handled) == 9)
    assert handled[7] == handled[8] == handled[3]


@pytest.mark.integration
def test_a_delayed_record_keeps_its_id_when_it_is_replayed(headrace: CommandLine) -> None:
    """The delay service names it by the place where it was sent, and so `once=` does."""
    headrace("topics", "create", "late")
    add(headrace, "late", 1, [1], [("headrace-source", b"late.delay/0/7"),
                                   ("headrace-source-topic-id", b"abc")])  # fmt: skip
    handled: list[str] = []
    app = App(headrace.bootstrap, group="late-app", delay="off")

    @app.on("late")
    def handle(message: Message) -> None:
        handled.append(message.id)

    with app.running():
        until(lambda: len(handled) == 1)
        until(lambda: committed(headrace, "late-app", "late") == [1])
        words = ("replay", "group", "late-app", "--topic", "late", "--from-offset", "0")
        headrace(*words, "--key", "k1", "--execute")
        until(lambda: len(handled) == 2)
    assert handled == ["late.delay/0/7@abc"] * 2


# ---- what people type


@pytest.mark.parametrize("wrong", ["nan", "inf", "-1", "0", "1e-9", "ten"])
@pytest.mark.parametrize("option", ["--rate", "--speed"])
def test_a_rate_that_is_none_is_refused(headrace: CommandLine, option: str, wrong: str) -> None:
    assert headrace.exit_code("replay", "copy", "a", "--to", "b", option, wrong) == 2


def test_a_wrong_time_is_told_with_its_option(headrace: CommandLine) -> None:
    for option in ("--since", "--until"):
        words = ("replay", "copy", "a", "--to", "b", option, "yesterday")
        assert headrace.exit_code(*words) == 2
        assert option in headrace._run(words, "").stderr
    words = ("backlog", "status", "--watch-for", "soon")
    assert "--watch-for" in headrace._run(words, "").stderr


@pytest.mark.integration
def test_moments_before_1970_and_in_other_zones_mean_what_they_say(headrace: CommandLine) -> None:
    filled(headrace, "zones", 1, 0)
    at_ms = 1_790_000_000_000  # 2026-09-21T14:13:20Z
    for number, shift_ms in enumerate((-1_000, 0, 1_000)):
        add(headrace, "zones", 1, [number], timestamp_ms=at_ms + shift_ms)
    headrace("topics", "create", "zones-copy", "--config", "retention.ms=-1")
    copied = {}
    for name, since in (
        ("before", "1969-12-31T23:59:59.999+00:00"),
        ("utc", "2026-09-21T14:13:20Z"),
        ("east", "2026-09-21T22:13:20+08:00"),
    ):
        words = ("replay", "copy", "zones", "--to", "zones-copy", "--since", since, "--name", name)
        copied[name] = headrace.json(*words, "--execute")["copied"]
    assert copied == {"before": 3, "utc": 2, "east": 2}


def test_a_name_of_a_backlog_is_not_taken(headrace: CommandLine) -> None:
    words = ("replay", "copy", "a", "--to", "b", "--name", "widen/orders/billing/1")
    assert "does not begin with" in headrace.failure(*words)


@pytest.mark.integration
def test_an_entry_that_nobody_can_read_hides_no_other(headrace: CommandLine) -> None:
    filled(headrace, "listed", 1, 3)
    commit(headrace, "listeners", "listed", 3)
    headrace("replay", "group", "listeners", "--topic", "listed", "--from-offset", "1", "--execute")
    producer = Producer({"bootstrap.servers": headrace.bootstrap})
    for key, value in ((b"\xff", b"{"), (None, b"x"), (b"copy/x", b"[]"), (b"group/1/g", b"{}")):
        producer.produce("headrace.replay", value, key=key)
    assert producer.flush(30) == 0
    found = json.loads(headrace("replay", "list", "--json"))
    assert "listeners" in {each["group"] for each in found["moves"]}


def test_times_that_no_calendar_has_are_shown_as_numbers(headrace: CommandLine) -> None:
    filled(headrace, "far", 1, 0)
    headrace("topics", "alter", "far", "--config", f"message.timestamp.after.max.ms={2**62}")
    add(headrace, "far", 1, range(3), timestamp_ms=2**53)
    commit(headrace, "far-readers", "far", 3)
    words = ("replay", "group", "far-readers", "--topic", "far", "--from-offset", "0")
    assert f"{2**53} ms" in headrace(*words)


@pytest.mark.integration
def test_records_that_a_topic_does_not_take_are_told_with_what_helps(
    headrace: CommandLine,
) -> None:
    filled(headrace, "odd", 1, 0)
    headrace("topics", "alter", "odd", "--config", f"message.timestamp.after.max.ms={2**62}")
    add(headrace, "odd", 1, range(3), timestamp_ms=2**53)
    headrace("topics", "create", "strict")
    words = ("replay", "copy", "odd", "--to", "strict", "--execute")
    assert "use --times now" in headrace.failure(*words)
    headrace(*words, "--times", "now", "--name", "now")
    producer = Producer({"bootstrap.servers": headrace.bootstrap})
    headrace("topics", "create", "keyless")
    producer.produce("keyless", b"1")
    assert producer.flush(30) == 0
    headrace("topics", "create", "tidy", "--config", "cleanup.policy=compact")
    said = headrace.failure("replay", "copy", "keyless", "--to", "tidy", "--execute")
    assert "takes no record without a key" in said


@pytest.mark.integration
def test_a_header_whose_name_is_no_text_stops_nobody(headrace: CommandLine) -> None:
    """librdkafka's binding for Python raises SystemError for it, Kafka's own client reads on."""
    headrace("topics", "create", "bytes", "--config", "retention.ms=-1")
    produce_with_header_name(headrace, "bytes", b"\xff\xfea")
    add(headrace, "bytes", 1, [7])
    assert "7" in headrace("consume", "bytes", "--headers", "--pretty")
    headrace("topics", "create", "bytes-copy")
    words = ("replay", "copy", "bytes", "--to", "bytes-copy", "--times", "now", "--execute")
    assert headrace.json(*words)["copied"] == 2
    [first, _] = headrace.json_lines("consume", "bytes-copy")
    assert next(header["name"] for header in first["headers"]).endswith("a")
    handled: list[bytes | None] = []
    app = App(headrace.bootstrap, group="bytes-app", delay="off")

    @app.on("bytes")
    def handle(message: Message) -> None:
        handled.append(message.value)

    with app.running():
        until(lambda: len(handled) == 2)


def produce_with_header_name(headrace: CommandLine, topic: str, name: bytes) -> None:
    stands_for = "x" * len(name)
    record = record_batch.Record(b"k", b"1", [record_batch.RecordHeader(stands_for, b"v")], 1)
    batch = bytearray(record_batch.build([record]).replace(stands_for.encode(), name))
    checksum = crc32c.crc32c(bytes(batch[record_batch.ATTRIBUTES_AT :]))
    struct.pack_into(">I", batch, record_batch.CRC_AT, checksum)
    data = produce.TopicProduceData(
        name=topic, partition_data=[produce.PartitionProduceData(0, bytes(batch))]
    )
    host, _, port = headrace.bootstrap.rpartition(":")
    with Wire(cluster_of(headrace), (host, int(port))) as wire:
        answer = wire.ask(produce, produce.ProduceRequest(None, -1, 5_000, [data]), version=9)
    assert answer.responses[0].partition_responses[0].error_code == 0
