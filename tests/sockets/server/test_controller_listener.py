"""The listener of the controller: opened with its own protocol, only for what is meant for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

import headrace.wire.protocol
from headrace.client.connection import ClientSettings
from headrace.client.wire import Wire
from headrace.node.assembly.served import ABOUT_OTHER_NODES, FETCH, FOR_CONTROLLERS, NOT_FOR_CLIENTS
from headrace.node.process.settings.settings import CannotStart, load_settings
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.messages import (
    api_versions,
    describe_cluster,
    describe_quorum,
    metadata,
)
from tests.sockets.server.a_secured_server import PLAIN_USERS, Certificates, SecuredServer
from tests.unit.node.broker.rig import Rig

DEFINITIONS = Path(headrace.wire.protocol.__file__).parent / "definitions" / "rpc"
CONTROLLERS = 2


def settings(certificates: Certificates, protocol: str) -> dict[str, str]:
    return certificates.settings() | {
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol}",
        "controller.listener.names": "CONTROLLER",
        "listener.name.controller.plain.sasl.jaas.config": PLAIN_USERS,
        "sasl.enabled.mechanisms": "PLAIN",
    }


@pytest.fixture(params=["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return Certificates(tmp_path / "certificates")


@pytest.fixture
def served(tmp_path: Path, certificates: Certificates, protocol: str) -> Iterator[SecuredServer]:
    given = settings(certificates, protocol)
    with SecuredServer(tmp_path / "data", "PLAINTEXT", "CONTROLLER", **given) as server:
        yield server


def wire(server: SecuredServer, certificates: Certificates, protocol: str, **more: str) -> Wire:
    given = {
        "bootstrap.servers": "never used",
        "security.protocol": protocol,
        "ssl.ca.location": str(certificates.ca),
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "wonder",
    }
    at = ClientSettings(given | {name.replace("_", "."): value for name, value in more.items()})
    return Wire(at, ("localhost", server.port("CONTROLLER")))


def test_it_answers_what_is_for_controllers(
    served: SecuredServer, certificates: Certificates, protocol: str
) -> None:
    with wire(served, certificates, protocol) as controller:
        listed = controller.ask(api_versions, api_versions.ApiVersionsRequest("x", "1"))
        theirs = FOR_CONTROLLERS | NOT_FOR_CLIENTS | ABOUT_OTHER_NODES | {FETCH}
        assert {line.api_key for line in listed.api_keys} == theirs
        asked = describe_cluster.DescribeClusterRequest(endpoint_type=CONTROLLERS)
        found = controller.ask(describe_cluster, asked)
        assert found.error_code == 0 and found.endpoint_type == CONTROLLERS
        [told] = found.brokers
        assert (told.broker_id, told.port) == (1, served.port("CONTROLLER"))
        quorum = describe_quorum.DescribeQuorumRequest(
            [
                describe_quorum.RequestTopicData(
                    "__cluster_metadata", [describe_quorum.RequestPartitionData(0)]
                )
            ]
        )
        answer = controller.ask(describe_quorum, quorum)
        [node] = answer.nodes
        assert node.listeners[0].port == served.port("CONTROLLER")


def test_it_sends_clients_away(
    served: SecuredServer, certificates: Certificates, protocol: str
) -> None:
    with wire(served, certificates, protocol) as controller:
        answer: Any = controller.ask(describe_cluster, describe_cluster.DescribeClusterRequest())
        assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
        with pytest.raises(Exception, match="closed the connection|did not answer"):
            controller._ask(metadata, 12, metadata.MetadataRequest(None))
    brokers = AdminClient(served.client("PLAINTEXT")).list_topics(timeout=60).brokers
    assert [broker.port for broker in brokers.values()] == [served.port("PLAINTEXT")]


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"], indirect=True)
def test_who_does_not_know_the_password_stays_outside(
    served: SecuredServer, certificates: Certificates, protocol: str
) -> None:
    with pytest.raises(Exception, match="wrong|[Aa]uthentication"):
        wire(served, certificates, protocol, sasl_password="guessed")


@pytest.mark.parametrize("protocol", ["SSL"], indirect=True)
def test_without_tls_nothing_is_answered(
    served: SecuredServer, certificates: Certificates, protocol: str
) -> None:
    with (
        pytest.raises(Exception, match="closed the connection|did not answer|no Kafka"),
        wire(served, certificates, "PLAINTEXT") as plain,
    ):
        plain.ask(api_versions, api_versions.ApiVersionsRequest("x", "1"))


def test_beyond_loopback_it_must_encrypt_and_ask_too() -> None:
    given = {
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://0.0.0.0:9093",
        "controller.listener.names": "CONTROLLER",
    }
    with pytest.raises(CannotStart, match="0.0.0.0:9093 lets other machines in"):
        load_settings(overrides=given)
    assert load_settings(overrides=given, insecure=True).controllers


def test_with_a_map_of_ones_own_it_must_be_in_the_map() -> None:
    given = {
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT",
    }
    with pytest.raises(CannotStart, match="CONTROLLER has no security protocol"):
        load_settings(overrides=given)


def test_the_list_is_kafkas_own_as_far_as_it_is_served(tmp_path: Path) -> None:
    theirs = set()
    for path in DEFINITIONS.glob("*Request.json"):
        definition = json.loads(path.read_text())
        if "controller" in definition.get("listeners", ()):
            theirs.add(definition["apiKey"])
    rig = Rig(tmp_path / "data")
    served = {route.api_key for route in rig.node.dispatch.routes.values()}
    assert theirs & served - {FETCH} - NOT_FOR_CLIENTS == FOR_CONTROLLERS
