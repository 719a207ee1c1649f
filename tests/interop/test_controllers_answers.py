"""What a controller answers to nodes: one script, asked of Apache Kafka's and of ours, must agree.

A made-up broker 2 registers, is unfenced, leaves and is given up; others pose as it. Ours is a node
with peers in this process, Apache's is a real one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.client.connection import ClientSettings
from headrace.client.wire import Wire
from headrace.environment import Now
from headrace.node.metadata.features import SUPPORTED_FEATURES
from headrace.node.serving.api import Call
from headrace.node.serving.envelopes import enclose
from headrace.node.serving.session import Session
from headrace.wire.protocol.framing import encode_request
from headrace.wire.protocol.messages import (
    allocate_producer_ids,
    alter_partition,
    api_versions,
    assign_replicas_to_dirs,
    broker_heartbeat,
    broker_registration,
    controller_registration,
    create_topics,
    describe_cluster,
    envelope,
    metadata,
    unregister_broker,
)
from headrace.wire.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from tests.interop.brokers import ApacheNode
from tests.unit.cluster.test_brokers import Story
from tests.unit.cluster.test_impostors import ENDED, asks

Ask = Callable[[Any, Any], Any]
DELEGATION_TOKENS = {38, 39, 40, 41}
FOLDER, TOPIC = b"folder".ljust(16), b"topic".ljust(16)


def a_registration(broker_id: int = 2, **fields: Any) -> Any:
    known: dict[str, Any] = dict(
        broker_id=broker_id,
        cluster_id=ApacheNode.cluster_id,
        incarnation_id=b"first".ljust(16),
        listeners=[broker_registration.Listener("PLAINTEXT", "host", 9092, 0)],
        features=every(broker_registration.Feature),
        rack=None,
        log_dirs=[FOLDER],
    )
    return broker_registration.BrokerRegistrationRequest(**known | fields)


def every(kind: Any) -> list[Any]:
    return [kind(name, *levels) for name, levels in SUPPORTED_FEATURES.items()]


def enclosed(messages: Any, request: Any, **fields: Any) -> Any:
    version = messages.VERSIONS[-1]
    pieces = encode_request(messages, version, 7, "client", request)
    frame = b"".join(bytes(piece) for piece in pieces)[4:]
    session = Session("10.0.0.1", "PLAINTEXT")
    found = enclose(Call(Now(0, 0), version, memoryview(frame), session, 7))
    for name, value in fields.items():
        setattr(found, name, value)
    return found


class Script:
    """Asks, and notes the answers that must be the same."""

    def __init__(self, ask: Ask) -> None:
        self.ask = ask
        self.noted: list[tuple[str, Any]] = []
        self.epoch = -1  # of broker 2

    def run(self) -> list[tuple[str, Any]]:
        self.registrations()
        self.life()
        self.strangers()
        self.envelopes()
        self.end()
        return self.noted

    def note(self, what: str, messages: Any, request: Any, *fields: str) -> Any:
        answer = self.ask(messages, request)
        told = ("error_code", *fields)
        self.noted.append((what, [getattr(answer, name) for name in told]))
        return answer

    def beats(self, what: str, *, epoch: int | None = None, offset: int = 0, **wants: Any) -> None:
        epoch = self.epoch if epoch is None else epoch
        request = BrokerHeartbeatRequest(2, epoch, epoch + offset, **wants)
        told = ("is_caught_up", "is_fenced", "should_shut_down")
        self.note(what, broker_heartbeat, request, *told)

    def registers(self, what: str, broker_id: int = 2, **fields: Any) -> None:
        request = a_registration(broker_id, **fields)
        answer = self.note(what, broker_registration, request)
        if broker_id == 2 and answer.error_code == 0:
            self.noted.append(("it is a new epoch", answer.broker_epoch > self.epoch))
            self.epoch = answer.broker_epoch

    def registrations(self) -> None:
        feature, reserved = broker_registration.Feature, bytes(15) + b"\1"
        self.beats("unknown", epoch=1)
        self.registers("another cluster", cluster_id="another")
        self.registers("ZooKeeper's", is_migrating_zk_broker=True)
        self.registers("the controller's own id", 1)
        for folders in ([], [bytes(16)], [reserved], [FOLDER, FOLDER]):
            self.registers(f"folders {folders}", log_dirs=folders)
        self.registers("without features", features=[])
        self.registers("too old", features=[feature("metadata.version", 1, 7)])
        self.registers("too few", features=[feature("metadata.version", 1, 30)])
        more = [*every(feature), feature("unheard.of", 1, 2)]
        self.registers("a feature that must be on", features=more)
        self.registers("joins")
        self.registers("asks again")
        self.registers("a second start while fenced", incarnation_id=b"second".ljust(16))
        self.registers("another broker's folder", 3)

    def life(self) -> None:
        self.beats("behind", offset=-1)
        self.beats("wants to stay fenced", want_fence=True)
        self.beats("is unfenced")
        self.registers("a third start while alive", incarnation_id=b"third".ljust(16))
        self.beats("wants to be fenced", want_fence=True)
        self.beats("is unfenced again")
        self.beats("an unknown folder failed", offline_log_dirs=[b"unknown".ljust(16)])

    def strangers(self) -> None:
        self.beats("of an old start", epoch=self.epoch - 1)
        self.beats("of a start to come", epoch=self.epoch + 1)
        ids = allocate_producer_ids.AllocateProducerIdsRequest
        for broker_id, epoch in ((2, self.epoch - 1), (77, 1), (2, self.epoch)):
            self.note("ids", allocate_producer_ids, ids(broker_id, epoch), "producer_id_len")
        member = alter_partition.BrokerState(2, self.epoch)
        proposal = alter_partition.RequestPartitionData(0, 0, [], [member], 0, 0)
        proposed = [alter_partition.RequestTopicData(TOPIC, [proposal])]
        for broker_id, epoch, topics in (
            (2, self.epoch - 1, []),
            (2, self.epoch - 1, proposed),
            (77, 1, proposed),
            (2, self.epoch, proposed),
        ):
            request = alter_partition.AlterPartitionRequest(broker_id, epoch, topics)
            found = self.note("in-sync replicas", alter_partition, request)
            codes = [part.error_code for topic in found.topics for part in topic.partitions]
            self.noted.append(("its partitions", codes))
        self.folders()
        kind = controller_registration.ControllerRegistrationRequest
        for features in ([], every(controller_registration.Feature)):
            listeners = [controller_registration.Listener("CONTROLLER", "host", 9093, 0)]
            request = kind(9, b"standby".ljust(16), False, listeners, features)
            self.note("a standby", controller_registration, request)

    def folders(self) -> None:
        partition = assign_replicas_to_dirs.RequestPartitionData(0)
        topics = [assign_replicas_to_dirs.RequestTopicData(TOPIC, [partition])]
        for epoch, folder in (
            (self.epoch - 1, FOLDER),
            (self.epoch, FOLDER),
            (self.epoch, b"unknown".ljust(16)),
        ):
            named = assign_replicas_to_dirs.RequestDirectoryData(folder, topics)
            request = assign_replicas_to_dirs.AssignReplicasToDirsRequest(2, epoch, [named])
            found = self.note("folders", assign_replicas_to_dirs, request)
            each = [topic for directory in found.directories for topic in directory.topics]
            codes = [part.error_code for topic in each for part in topic.partitions]
            self.noted.append(("its partitions", codes))

    def envelopes(self) -> None:
        heartbeat = BrokerHeartbeatRequest(2, self.epoch, self.epoch)
        nothing = create_topics.CreateTopicsRequest([], 5_000)
        for what, request in (
            ("garbage", envelope.EnvelopeRequest(b"abc", None, b"\x7f\0\0\1")),
            ("a heartbeat", enclosed(broker_heartbeat, heartbeat)),
            ("a client's own", enclosed(metadata, metadata.MetadataRequest([]))),
            ("an envelope", enclosed(envelope, envelope.EnvelopeRequest(b"", None, b""))),
            ("no address", enclosed(create_topics, nothing, client_host_address=b"\1\2")),
            ("no principal", enclosed(create_topics, nothing, request_principal=b"\0\5")),
            ("a creation", enclosed(create_topics, nothing)),
        ):
            self.note(f"an envelope with {what}", envelope, request)

    def end(self) -> None:
        self.beats("wants to stop", offset=100, want_shut_down=True)
        self.beats("waits for the others", offset=100, want_shut_down=True)
        kind = unregister_broker.UnregisterBrokerRequest
        for broker_id in (77, 2):
            self.note("is given up", unregister_broker, kind(broker_id))
        self.beats("is not known any more")
        controllers = describe_cluster.DescribeClusterRequest(endpoint_type=2)
        self.note("the cluster", describe_cluster, controllers, "controller_id", "endpoint_type")


def listed(ask: Ask) -> dict[int, tuple[int, int]]:
    answer = ask(api_versions, api_versions.ApiVersionsRequest("test", "1"))
    return {
        line.api_key: (line.min_version, line.max_version)
        for line in answer.api_keys
        if line.api_key not in DELEGATION_TOKENS
    }


def ours() -> tuple[Any, Any]:
    story = Story(nodes=1)
    [node] = story.members

    def ask(messages: Any, request: Any) -> Any:
        answer = asks(story, node, messages, request)
        assert answer != ENDED, messages.NAME
        return answer

    return listed(ask), Script(ask).run()


def apaches(node: ApacheNode) -> tuple[Any, Any]:
    at = ClientSettings({"bootstrap.servers": "never used"})

    def ask(messages: Any, request: Any) -> Any:
        with Wire(at, ("127.0.0.1", node.controller_port)) as wire:
            return wire._ask(messages, messages.VERSIONS[-1], request)

    return listed(ask), Script(ask).run()


def test_our_controller_answers_nodes_as_apaches_does(tmp_path: Path) -> None:
    with ApacheNode(tmp_path) as node:
        assert isinstance(node, ApacheNode)
        their_apis, their_answers = apaches(node)
    our_apis, our_answers = ours()
    assert our_apis == their_apis
    assert len(our_answers) > 50
    assert our_answers == their_answers
