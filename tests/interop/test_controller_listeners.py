"""Apache's tools at a controller's own listener, with TLS and a login, at ours and at Apache's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.interop.brokers import ApacheNode, HeadraceNode, Node, free_port
from tests.interop.java_session import JavaSession
from tests.patience import until
from tests.sockets.server.a_secured_server import Certificates

QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
LOGIN = f'{PLAIN} required username="ann" password="wonder" user_ann="wonder";'


class HeadraceWithController(HeadraceNode):
    def __init__(self, folder: Path, given: dict[str, str]) -> None:
        super().__init__(folder, given)
        self.controller_port = free_port()
        self.settings |= {
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://127.0.0.1:{self.controller_port}",
            "controller.listener.names": "CONTROLLER",
        }

    def command(self) -> list[str]:
        program, start, data, folder, _, _, *rest = super().command()
        return [program, start, data, folder, *rest]  # where to listen is among the settings


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(params=["SSL", "SASL_SSL"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def settings(certificates: Certificates, protocol: str) -> dict[str, str]:
    return certificates.settings() | {
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:{protocol}",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": LOGIN,
    }


@pytest.fixture(params=["headrace", "apache"])
def node(
    request: pytest.FixtureRequest, tmp_path: Path, certificates: Certificates, protocol: str
) -> Iterator[Node]:
    kind = HeadraceWithController if request.param == "headrace" else ApacheNode
    with kind(tmp_path / "node", settings(certificates, protocol)) as started:
        yield started


def test_tools_talk_to_the_controller(
    node: Node, java: JavaSession, certificates: Certificates, protocol: str, tmp_path: Path
) -> None:
    assert isinstance(node, HeadraceWithController | ApacheNode)
    client = tmp_path / "client.properties"
    client.write_text(
        f"security.protocol={protocol}\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={certificates.ca}\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={PLAIN} required username="ann" password="wonder";\n'
    )
    where = ("--bootstrap-controller", f"127.0.0.1:{node.controller_port}")
    at = (*where, "--command-config", str(client))
    described = java.run(QUORUM, *at, "describe", "--status")
    assert "LeaderId:               1" in described
    assert f":{node.controller_port}" in described.replace(" ", "").replace("//", "")
    alter = ("--alter", "--entity-type", "brokers", "--entity-name", "1")
    java.run(CONFIGS, *at, *alter, "--add-config", "log.retention.ms=777777")
    shown = (CONFIGS, *at, "--describe", *alter[1:])
    until(lambda: "log.retention.ms=777777" in java.run(*shown))
