"""Files of many partitions are made and deleted in slices, and everybody else is served between.

In these stories each turn of the loop makes or deletes the files of one partition.
"""

import os
import shutil

import pytest

from headrace.node.broker.handlers.find_coordinator import LONGEST_WAIT_MS
from headrace.node.process.folders.real_disk import RealDisk
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    create_partitions,
    create_topics,
    delete_topics,
    find_coordinator,
    init_producer_id,
    metadata,
)
from tests.unit.node.broker.rig import WAITS, Rig

E = ErrorCode
MANY = 40


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path / "data", transaction_state_log_num_partitions=1)
    rig.create("orders")
    rig.slowly = True
    return rig


def ask_to_create(rig, name, partitions=MANY, timeout_ms=60_000):
    topic = create_topics.CreatableTopic(name, partitions, -1)
    session = rig.connect()
    asked = create_topics.CreateTopicsRequest([topic], timeout_ms)
    return session, rig.ask(create_topics, asked, session=session)


def ask_to_delete(rig, name):
    asked = delete_topics.DeleteTopicsRequest([delete_topics.DeleteTopicState(name)], [], 60_000)
    [result] = rig.ask(delete_topics, asked).responses
    return result.error_code


def run_until(rig, session):
    while not session.outbox:
        rig.until_idle()


def folders(rig, name):
    return [found for found in os.listdir(rig.folder) if found.startswith(f"{name}-")]


def test_others_are_served_while_a_topic_gets_its_files(rig):
    session, answer = ask_to_create(rig, "wide")
    assert answer == WAITS
    assert len(folders(rig, "wide")) < MANY
    assert rig.produce("orders", "a").error_code == E.NONE
    assert rig.ask(init_producer_id, init_producer_id.InitProducerIdRequest(None, 1_000))
    # The topic is decided; whoever writes to it too early is told to try again, as by Apache Kafka.
    assert rig.produce("wide", "a").error_code == E.UNKNOWN_TOPIC_OR_PARTITION
    run_until(rig, session)
    [result] = rig.answer_on(session, create_topics).topics
    assert result.error_code == E.NONE
    assert len(folders(rig, "wide")) == MANY
    assert rig.produce("wide", "a", partition=MANY - 1).error_code == E.NONE


def test_no_turn_writes_the_small_files_of_many_partitions(tmp_path):
    """Each partition's folder, id and leader epoch are written in a step of its own."""
    written = []

    class CountingDisk(RealDisk):
        def write_file(self, path, pieces, *, flush=True):
            written.append(path)
            super().write_file(path, pieces, flush=flush)

    rig = Rig(tmp_path / "data", disk=CountingDisk())
    rig.slowly = True
    session, answer = ask_to_create(rig, "wide")
    assert answer == WAITS
    in_one_turn = []
    while not session.outbox:
        written.clear()
        rig.until_idle()
        in_one_turn.append(len(written))
    assert sum(in_one_turn) >= MANY, "each partition has files of its own"
    assert max(in_one_turn) < 10


def test_nobody_is_sent_to_a_coordinator_whose_topic_has_no_files_yet(rig):
    request = find_coordinator.FindCoordinatorRequest("g", 0, ["g"])
    first, second = rig.connect(), rig.connect()
    assert rig.ask(find_coordinator, request, session=first) == WAITS
    assert rig.ask(find_coordinator, request, session=second) == WAITS
    for session in (first, second):
        run_until(rig, session)
        [told] = rig.answer_on(session, find_coordinator).coordinators
        assert (told.error_code, told.node_id) == (E.NONE, 1)


def test_who_asks_for_a_coordinator_does_not_wait_for_ever_for_the_files_of_its_topic(rig):
    request = find_coordinator.FindCoordinatorRequest("g", 0, ["g"])
    first, second = rig.connect(), rig.connect()
    assert rig.ask(find_coordinator, request, session=first) == WAITS
    assert rig.ask(find_coordinator, request, session=second) == WAITS
    rig.now.monotonic_ms += LONGEST_WAIT_MS
    rig.until_idle()
    [told] = rig.answer_on(second, find_coordinator).coordinators
    assert told.error_code == E.COORDINATOR_NOT_AVAILABLE, "it asks again"


def test_more_partitions_come_in_slices_and_the_first_ones_serve_meanwhile(rig):
    more = create_partitions.CreatePartitionsTopic("orders", MANY, None)
    session = rig.connect()
    asked = create_partitions.CreatePartitionsRequest([more], 60_000)
    assert rig.ask(create_partitions, asked, session=session) == WAITS
    assert rig.produce("orders", "a").error_code == E.NONE
    run_until(rig, session)
    assert rig.produce("orders", "a", partition=MANY - 1).error_code == E.NONE


def test_a_request_whose_time_is_up_is_told_that_its_topic_is_made(rig):
    """It is committed: that its files are not all there yet is no reason to try again."""
    session, answer = ask_to_create(rig, "wide", timeout_ms=1_000)
    assert answer == WAITS
    rig.now.monotonic_ms += 1_000
    rig.until_idle()
    [result] = rig.answer_on(session, create_topics).topics
    assert result.error_code == E.NONE and len(folders(rig, "wide")) < MANY


def test_names_that_come_into_being_by_being_asked_for_come_in_slices(rig):
    names = [f"t{number}" for number in range(MANY)]
    asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name) for name in names])
    session = rig.connect()
    assert rig.ask(metadata, asked, version=9, session=session) == WAITS
    assert rig.produce("orders", "a").error_code == E.NONE
    run_until(rig, session)
    topics = rig.answer_on(session, metadata, 9).topics
    assert {topic.error_code for topic in topics} == {E.NONE} and len(topics) == MANY


def test_a_topic_that_is_deleted_before_it_had_all_files_leaves_none(rig):
    session, answer = ask_to_create(rig, "wide")
    assert answer == WAITS
    assert ask_to_delete(rig, "wide") == E.NONE
    rig.slowly = False
    rig.until_idle()
    [result] = rig.answer_on(session, create_topics).topics
    assert result.error_code == E.NONE, "it was made, and then deleted"
    assert all(found.endswith("-delete") for found in folders(rig, "wide"))
    assert "wide" not in rig.node.broker.topics.by_name


def test_a_name_is_used_again_while_its_old_files_are_being_deleted(rig):
    rig.slowly = False
    rig.create("wide", MANY)
    rig.produce("wide", "old", partition=MANY - 1)
    rig.slowly = True
    assert ask_to_delete(rig, "wide") == E.NONE
    session, answer = ask_to_create(rig, "wide")
    assert answer == WAITS
    run_until(rig, session)
    found = rig.fetch("wide", partition=MANY - 1)
    assert found.error_code == E.NONE and found.high_watermark == 0, "nothing of the old one"


@pytest.mark.parametrize("deletes", [False, True])
def test_a_node_that_is_killed_between_two_slices_is_mended_by_its_next_start(
    rig, tmp_path, deletes
):
    if deletes:
        rig.slowly = False
        rig.create("wide", MANY)
        rig.slowly = True
        assert ask_to_delete(rig, "wide") == E.NONE
    else:
        assert ask_to_create(rig, "wide")[1] == WAITS
    rig.until_idle()
    rig.until_idle()
    left = [name for name in folders(rig, "wide") if not name.endswith("-delete")]
    assert 0 < len(left) < MANY
    shutil.copytree(rig.folder, tmp_path / "again")
    again = Rig(tmp_path / "again")
    if deletes:
        assert "wide" not in again.node.broker.topics.by_name
        assert all(name.endswith("-stray") for name in folders(again, "wide"))
    else:
        assert again.produce("wide", "a", partition=MANY - 1).error_code == E.NONE
