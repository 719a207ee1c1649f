"""Whatever a node says to the controller, it is answered and the metadata stay readable."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from headrace.node.metadata.features import SUPPORTED_FEATURES
from headrace.node.metadata.image import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    MetadataImage,
)
from headrace.node.metadata.snapshot_records import records_of
from headrace.node.serving.session import Session
from headrace.wire.protocol.framing import decode_response
from headrace.wire.protocol.messages import (
    allocate_producer_ids,
    alter_partition,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_topics,
    unregister_broker,
)
from tests.effort import examples
from tests.unit.node.broker.cluster.remote_controller import (
    LISTENER,
    RemoteBroker,
    RemoteController,
)

NODES = st.sampled_from([-1, 0, 1, 2, 3, 9, 2**31 - 1])
EPOCHS = st.sampled_from([-1, 0, 13, 14, 15, 2**63 - 1]) | st.integers(0, 60)
SMALL = st.sampled_from([-1, 0, 1, 2, 7, 2**31 - 1])
SHORT = st.sampled_from([-1, 0, 1, 7, 30, 2**15 - 1])
IDS = st.sampled_from(
    [
        bytes(16),
        b"folder 2" + bytes(8),
        b"folder 3" + bytes(8),
        LOST_DIRECTORY,
        MIGRATING_DIRECTORY,
        UNASSIGNED_DIRECTORY,
        b"another".ljust(16),
    ]
)
LEVELS = st.sampled_from(sorted(SUPPORTED_FEATURES.items()))


def some(kind: Any) -> st.SearchStrategy[list[Any]]:
    return st.lists(kind, max_size=3)


def feature(kind: Any) -> Any:
    true = st.builds(lambda known: kind(known[0], *known[1]), LEVELS)
    return true | st.builds(kind, st.sampled_from(["metadata.version", "x"]), SHORT, SHORT)


def features(kind: Any) -> Any:
    everything = [kind(name, *levels) for name, levels in SUPPORTED_FEATURES.items()]
    return st.just(everything) | some(feature(kind))


def listeners(kind: Any) -> Any:
    ports = st.sampled_from([0, 1, 9092, 65_535])
    return some(
        st.builds(
            kind,
            st.sampled_from(["PLAINTEXT", ""]),
            st.text(max_size=3),
            ports,
            SMALL.filter(lambda n: n < 8),
        )
    )


REGISTRATIONS = st.builds(
    broker_registration.BrokerRegistrationRequest,
    broker_id=NODES,
    cluster_id=st.sampled_from(["", "4L6g3nShT-eMCtK--X86sw"]),
    incarnation_id=IDS,
    listeners=listeners(broker_registration.Listener),
    features=features(broker_registration.Feature),
    rack=st.none() | st.text(max_size=3),
    is_migrating_zk_broker=st.booleans(),
    log_dirs=some(IDS),
    previous_broker_epoch=EPOCHS,
)
HEARTBEATS = st.builds(
    broker_heartbeat.BrokerHeartbeatRequest,
    NODES,
    EPOCHS,
    EPOCHS,
    st.booleans(),
    st.booleans(),
    some(IDS),
    st.none() | some(IDS),
)
PARTITIONS = st.builds(
    alter_partition.RequestPartitionData,
    SMALL,
    SMALL,
    some(NODES),
    some(st.builds(alter_partition.BrokerState, NODES, EPOCHS)),
    st.sampled_from([-1, 0, 1, 2, 127]),
    SMALL,
)


@cache
def requests_for(topic_id: bytes) -> Any:
    """Made once: hypothesis looks through a strategy whenever it is new."""
    topics = st.sampled_from([topic_id, topic_id, bytes(16)])
    proposals = st.builds(alter_partition.RequestTopicData, topics, some(PARTITIONS))
    replicas = some(st.builds(assign_replicas_to_dirs.RequestPartitionData, SMALL))
    assigned = st.builds(assign_replicas_to_dirs.RequestTopicData, topics, replicas)
    folders = st.builds(assign_replicas_to_dirs.RequestDirectoryData, IDS, some(assigned))
    request = st.one_of(
        st.tuples(st.just(broker_registration), REGISTRATIONS),
        st.tuples(st.just(broker_heartbeat), HEARTBEATS),
        st.tuples(
            st.just(alter_partition),
            st.builds(alter_partition.AlterPartitionRequest, NODES, EPOCHS, some(proposals)),
        ),
        st.tuples(
            st.just(allocate_producer_ids),
            st.builds(allocate_producer_ids.AllocateProducerIdsRequest, NODES, EPOCHS),
        ),
        st.tuples(
            st.just(assign_replicas_to_dirs),
            st.builds(
                assign_replicas_to_dirs.AssignReplicasToDirsRequest, NODES, EPOCHS, some(folders)
            ),
        ),
        st.tuples(
            st.just(controller_registration),
            st.builds(
                controller_registration.ControllerRegistrationRequest,
                NODES,
                IDS,
                st.booleans(),
                listeners(controller_registration.Listener),
                features(controller_registration.Feature),
            ),
        ),
        st.tuples(
            st.just(unregister_broker),
            st.builds(unregister_broker.UnregisterBrokerRequest, NODES),
        ),
    )
    return st.lists(request, min_size=1, max_size=8)


def rebuilt(image: MetadataImage) -> MetadataImage:
    """As a node that starts from a snapshot has it."""
    empty = MetadataImage(cluster_id=image.cluster_id)
    return empty.apply(
        list(records_of(image)), offset=image.offset, epoch=image.epoch, wall_ms=image.wall_ms
    )


@pytest.fixture
def controller(tmp_path: Path) -> RemoteController:
    found = RemoteController(tmp_path)
    for broker_id in (2, 3):
        RemoteBroker(found, broker_id).starts()
    assignment = create_topics.CreatableReplicaAssignment(0, [2, 3, 1])
    topic = create_topics.CreatableTopic("orders", -1, -1, [assignment])
    found.quorum.controller.create_topics(create_topics.CreateTopicsRequest([topic]), found.now)
    found.until_idle()
    found.brokers.clear()  # only what is made up is heard from now on
    return found


@settings(
    max_examples=examples(60),
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # a story of eight is short enough
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(data=st.data())
def test_every_request_of_a_node_is_answered(controller: RemoteController, data: Any) -> None:
    topic_id = controller.image.topics["orders"].id
    for messages, request in data.draw(requests_for(topic_id)):
        version = data.draw(st.sampled_from(messages.VERSIONS), label=f"{messages.NAME} version")
        session = Session("10.0.0.2", LISTENER)
        try:
            controller.send(session, messages, version, request)
        except ValueError:
            continue  # this version cannot say that
        controller.until_idle()
        reply = b"".join(bytes(piece) for piece in session.outbox)  # type: ignore[arg-type]
        answer = decode_response(messages, version, memoryview(reply)[4:])[1]
        assert answer is not None
    image = controller.image
    again = rebuilt(image)
    assert (again.brokers, again.controllers, again.topics) == (
        image.brokers,
        image.controllers,
        image.topics,
    )
    for partition in image.topics["orders"].partitions:
        assert set(partition.isr) <= set(partition.replicas)
        assert partition.leader == -1 or partition.leader in partition.isr
