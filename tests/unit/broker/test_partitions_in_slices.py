"""Files of many partitions are made and deleted in slices, and everybody else is served between.

In these stories each turn of the loop makes or deletes the files of one partition.
"""

import os
import shutil

import pytest

from headrace.protocol.errors import ErrorCode
from headrace.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    find_coordinator,
    init_producer_id,
    metadata,
)
from headrace.server.real_disk import RealDisk
from tests.unit.broker.bench import PARKED, Bench

E = ErrorCode
MANY = 40


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path / "data", transaction_state_log_num_partitions=1)
    bench.create("orders")
    bench.slowly = True
    return bench


def ask_to_create(bench, name, partitions=MANY, timeout_ms=60_000):
    topic = create_topics.CreatableTopic(name, partitions, -1)
    session = bench.connect()
    asked = create_topics.CreateTopicsRequest([topic], timeout_ms)
    return session, bench.ask(create_topics, asked, session=session)


def ask_to_delete(bench, name):
    asked = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(name)], [], 60_000)
    [result] = bench.ask(delete_topics, asked).responses
    return result.error_code


def settle_until(bench, session):
    while not session.outbox:
        bench.settle()


def folders(bench, name):
    return [found for found in os.listdir(bench.folder) if found.startswith(f"{name}-")]


def test_others_are_served_while_a_topic_gets_its_files(bench):
    session, answer = ask_to_create(bench, "wide")
    assert answer == PARKED
    assert len(folders(bench, "wide")) < MANY
    assert bench.produce("orders", "a").error_code == E.NONE
    assert bench.ask(init_producer_id, init_producer_id.InitProducerIdRequest(None, 1_000))
    # The topic is decided; whoever writes to it too early is told to try again, as by Apache Kafka.
    assert bench.produce("wide", "a").error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    settle_until(bench, session)
    [result] = bench.answer_on(session, create_topics).topics
    assert result.error_code == E.NONE
    assert len(folders(bench, "wide")) == MANY
    assert bench.produce("wide", "a", partition=MANY - 1).error_code == E.NONE


def test_no_turn_writes_the_small_files_of_many_partitions(tmp_path):
    """Each partition's folder, id and leader epoch are written in a step of its own."""
    written = []

    class CountingDisk(RealDisk):
        def write_file(self, path, pieces, *, flush=True):
            written.append(path)
            super().write_file(path, pieces, flush=flush)

    bench = Bench(tmp_path / "data", disk=CountingDisk())
    bench.slowly = True
    session, answer = ask_to_create(bench, "wide")
    assert answer == PARKED
    in_one_turn = []
    while not session.outbox:
        written.clear()
        bench.settle()
        in_one_turn.append(len(written))
    assert sum(in_one_turn) >= MANY, "each partition has files of its own"
    assert max(in_one_turn) < 10


def test_nobody_is_sent_to_a_coordinator_whose_topic_has_no_files_yet(bench):
    request = find_coordinator.FindCoordinatorRequest("g", 0, ["g"])
    first, second = bench.connect(), bench.connect()
    assert bench.ask(find_coordinator, request, session=first) == PARKED
    [told] = bench.ask(find_coordinator, request, session=second).coordinators
    assert told.error_code == E.COORDINATOR_NOT_AVAILABLE, "it asks again"
    settle_until(bench, first)
    [told] = bench.answer_on(first, find_coordinator).coordinators
    assert (told.error_code, told.node_id) == (E.NONE, 1)


def test_more_partitions_come_in_slices_and_the_first_ones_serve_meanwhile(bench):
    more = create_partitions.CreatePartitionsTopic("orders", MANY, None)
    session = bench.connect()
    asked = create_partitions.CreatePartitionsRequest([more], 60_000)
    assert bench.ask(create_partitions, asked, session=session) == PARKED
    assert bench.produce("orders", "a").error_code == E.NONE
    settle_until(bench, session)
    assert bench.produce("orders", "a", partition=MANY - 1).error_code == E.NONE


def test_a_request_whose_time_is_up_is_told_that_its_topic_is_made(bench):
    """It is committed: that its files are not all there yet is no reason to try again."""
    session, answer = ask_to_create(bench, "wide", timeout_ms=1_000)
    assert answer == PARKED
    bench.now.monotonic_ms += 1_000
    bench.settle()
    [result] = bench.answer_on(session, create_topics).topics
    assert result.error_code == E.NONE and len(folders(bench, "wide")) < MANY


def test_names_that_come_into_being_by_being_asked_for_come_in_slices(bench):
    names = [f"t{number}" for number in range(MANY)]
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in names])
    session = bench.connect()
    assert bench.ask(metadata, asked, version=9, session=session) == PARKED
    assert bench.produce("orders", "a").error_code == E.NONE
    settle_until(bench, session)
    topics = bench.answer_on(session, metadata, 9).topics
    assert {topic.error_code for topic in topics} == {E.NONE} and len(topics) == MANY


def test_a_topic_that_is_deleted_before_it_had_all_files_leaves_none(bench):
    session, answer = ask_to_create(bench, "wide")
    assert answer == PARKED
    assert ask_to_delete(bench, "wide") == E.NONE
    bench.slowly = False
    bench.settle()
    [result] = bench.answer_on(session, create_topics).topics
    assert result.error_code == E.NONE, "it was made, and then deleted"
    assert all(found.endswith("-delete") for found in folders(bench, "wide"))
    assert "wide" not in bench.node.broker.topics.by_name


def test_a_name_is_used_again_while_its_old_files_are_being_deleted(bench):
    bench.slowly = False
    bench.create("wide", MANY)
    bench.produce("wide", "old", partition=MANY - 1)
    bench.slowly = True
    assert ask_to_delete(bench, "wide") == E.NONE
    session, answer = ask_to_create(bench, "wide")
    assert answer == PARKED
    settle_until(bench, session)
    found = bench.fetch("wide", partition=MANY - 1)
    assert found.error_code == E.NONE and found.high_watermark == 0, "nothing of the old one"


@pytest.mark.parametrize("deletes", [False, True])
def test_a_node_that_is_killed_between_two_slices_is_mended_by_its_next_start(
    bench, tmp_path, deletes
):
    if deletes:
        bench.slowly = False
        bench.create("wide", MANY)
        bench.slowly = True
        assert ask_to_delete(bench, "wide") == E.NONE
    else:
        assert ask_to_create(bench, "wide")[1] == PARKED
    bench.settle()
    bench.settle()
    left = [name for name in folders(bench, "wide") if not name.endswith("-delete")]
    assert 0 < len(left) < MANY
    shutil.copytree(bench.folder, tmp_path / "again")
    again = Bench(tmp_path / "again")
    if deletes:
        assert "wide" not in again.node.broker.topics.by_name
        assert all(name.endswith("-stray") for name in folders(again, "wide"))
    else:
        assert again.produce("wide", "a", partition=MANY - 1).error_code == E.NONE
