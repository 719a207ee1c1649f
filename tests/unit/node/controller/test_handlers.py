"""The controller's APIs, asked in every version through their codecs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import headrace.node.controller.handlers as handlers
from headrace.node.controller.controller_settings import ControllerSettings
from headrace.node.controller.handlers import HANDLERS
from headrace.node.controller.topics import TopicRules
from headrace.node.serving.api import Call, WaitingRequest
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    allocate_producer_ids,
    create_partitions,
    create_topics,
    delete_topics,
    describe_quorum,
    update_features,
)
from tests.unit.node.consensus.quorum_of_one import QuorumOfOne

API_OF = {api.messages.API_KEY: api for api in HANDLERS}


def ask(quorum: QuorumOfOne, messages: Any, version: int, request: Any) -> Any:
    """Over the wire and back, as a client of that version sees it."""
    api = API_OF[messages.API_KEY]
    pieces: list[Any] = []
    messages.ENCODE_REQUEST[version](request, pieces.append)
    decoded, _ = messages.DECODE_REQUEST[version](memoryview(b"".join(pieces)), 0)
    call = Call(quorum.now, version, "test", None, 1)  # type: ignore[arg-type]
    answer = api.handle(quorum.controller, decoded, call)
    if isinstance(answer, WaitingRequest):
        assert answer.attempt(False) is None
        quorum.flush()
        answer = answer.attempt(False)
    pieces = []
    messages.ENCODE_RESPONSE[version](answer, pieces.append)
    response, _ = messages.DECODE_RESPONSE[version](memoryview(b"".join(pieces)), 0)
    return response


def test_every_module_beside_the_table_of_contents_is_in_it() -> None:
    folder = Path(str(handlers.__file__)).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    listed = {api.handle.__module__.rpartition(".")[2] for api in HANDLERS}
    assert modules == listed
    assert len(API_OF) == len(HANDLERS)
    for api in HANDLERS:
        assert api.owner == "controller"
        assert set(api.versions) <= set(api.messages.VERSIONS)


@pytest.mark.parametrize("version", create_topics.VERSIONS)
def test_create_topics(tmp_path: Path, version: int) -> None:
    quorum = QuorumOfOne(tmp_path)
    wanted = [
        create_topics.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
        for name in ("orders", "..")
    ]
    response = ask(quorum, create_topics, version, create_topics.CreateTopicsRequest(wanted))
    made, refused = response.topics
    assert (made.error_code, refused.error_code) == (0, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert "empty" not in (refused.error_message or "") and refused.error_message
    assert len(quorum.controller.committed_image.topics["orders"].partitions) == 2
    if version >= 5:
        assert (made.num_partitions, refused.num_partitions) == (2, -1)
    if version >= 7:
        assert made.topic_id == quorum.controller.image.topics["orders"].id


def test_create_topics_refused_as_a_whole_and_out_of_time(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    many = create_topics.CreatableTopic(name="many", num_partitions=10_001, replication_factor=1)
    response = ask(quorum, create_topics, 7, create_topics.CreateTopicsRequest([many]))
    assert [topic.error_code for topic in response.topics] == [ErrorCode.POLICY_VIOLATION]

    one = create_topics.CreatableTopic(name="one", num_partitions=1, replication_factor=1)
    call = Call(quorum.now, 7, "test", None, 1)  # type: ignore[arg-type]
    request = create_topics.CreateTopicsRequest([one], timeout_ms=0)
    not_begun = ask(quorum, create_topics, 7, request)
    assert [topic.error_code for topic in not_begun.topics] == [ErrorCode.REQUEST_TIMED_OUT]
    assert not quorum.controller.image.topics
    request = create_topics.CreateTopicsRequest([one], timeout_ms=10)
    waiting = API_OF[create_topics.API_KEY].handle(quorum.controller, request, call)
    late = waiting.attempt(True)
    assert [topic.error_code for topic in late.topics] == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("version", delete_topics.VERSIONS)
def test_delete_topics(tmp_path: Path, version: int) -> None:
    quorum = QuorumOfOne(tmp_path)
    quorum.create("orders")
    request = delete_topics.DeleteTopicsRequest(
        topic_names=["orders"] if version < 6 else [],
        topics=[delete_topics.DeleteTopicState(name="orders")] if version >= 6 else [],
    )
    quorum.flush()
    not_begun = ask(quorum, delete_topics, version, request)
    assert not_begun.responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    request.timeout_ms = 30_000
    response = ask(quorum, delete_topics, version, request)
    assert [(r.name, r.error_code) for r in response.responses] == [("orders", 0)]
    assert not quorum.controller.committed_image.topics


@pytest.mark.parametrize("version", create_partitions.VERSIONS)
def test_create_partitions(tmp_path: Path, version: int) -> None:
    quorum = QuorumOfOne(tmp_path)
    quorum.create("orders")
    wanted = create_partitions.CreatePartitionsTopic(name="orders", count=3, assignments=None)
    quorum.flush()
    request = create_partitions.CreatePartitionsRequest([wanted], timeout_ms=0)
    not_begun = ask(quorum, create_partitions, version, request)
    assert not_begun.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
    request.timeout_ms = 30_000
    response = ask(quorum, create_partitions, version, request)
    assert [(r.name, r.error_code) for r in response.results] == [("orders", 0)]
    assert len(quorum.controller.committed_image.topics["orders"].partitions) == 3


@pytest.mark.parametrize("version", update_features.VERSIONS)
def test_update_features(tmp_path: Path, version: int) -> None:
    quorum = QuorumOfOne(tmp_path)

    def change(level: int, **how: Any) -> Any:
        update = update_features.FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, **how
        )
        request = update_features.UpdateFeaturesRequest(feature_updates=[update])
        return ask(quorum, update_features, version, request)

    assert change(1).error_code == ErrorCode.INVALID_UPDATE_VERSION
    down = {"allow_downgrade": True} if version == 0 else {"upgrade_type": 2}
    response = change(1, **down)
    assert response.error_code == 0
    if version < 2:
        assert [result.feature for result in response.results] == ["transaction.version"]
    assert quorum.controller.committed_image.features["transaction.version"] == 1


def test_several_features_change_together_or_not_at_all(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    updates = [
        update_features.FeatureUpdateKey("transaction.version", 1, False, 2),
        update_features.FeatureUpdateKey("unheard.of", 1, False, 1),
    ]
    request = update_features.UpdateFeaturesRequest(feature_updates=updates)
    response = ask(quorum, update_features, 1, request)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert quorum.controller.image.features["transaction.version"] == 2


@pytest.mark.parametrize("version", describe_quorum.VERSIONS)
def test_describe_quorum(tmp_path: Path, version: int) -> None:
    quorum = QuorumOfOne(tmp_path)

    def describe(topic: str, index: int) -> Any:
        asked = describe_quorum.RequestTopicData(
            topic, [describe_quorum.RequestPartitionData(index)]
        )
        request = describe_quorum.DescribeQuorumRequest([asked])
        response = ask(quorum, describe_quorum, version, request)
        return response, response.topics[0].partitions[0]

    response, partition = describe("__cluster_metadata", 0)
    assert (partition.leader_id, partition.leader_epoch) == (1, 1)
    assert partition.high_watermark == quorum.storage.end_offset
    assert [voter.replica_id for voter in partition.current_voters] == [1]
    if version >= 2:
        assert [node.listeners for node in response.nodes] == [[]], "nobody listens there"
        quorum.controller.settings.open_listeners = frozenset({"CONTROLLER"})
        response, _ = describe("__cluster_metadata", 0)
        assert response.nodes[0].listeners[0].port == 9093
    _, unknown = describe("orders", 0)
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_allocate_producer_ids(tmp_path: Path) -> None:
    quorum = QuorumOfOne(tmp_path)
    request = allocate_producer_ids.AllocateProducerIdsRequest(1, quorum.controller.broker_epoch)
    response = ask(quorum, allocate_producer_ids, 0, request)
    assert (response.producer_id_start, response.producer_id_len) == (0, 1000)
    assert quorum.controller.committed_image.next_producer_id == 1000


def test_deletion_can_be_switched_off(tmp_path: Path) -> None:
    rules = TopicRules(delete_topic_enable=False)
    quorum = QuorumOfOne(tmp_path, ControllerSettings(topic_rules=rules))
    quorum.create("orders")
    request = delete_topics.DeleteTopicsRequest(topic_names=["orders"], timeout_ms=30_000)
    response = ask(quorum, delete_topics, 5, request)
    assert response.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
