"""The HTTP door on Apache Kafka: the documented requests; keys under kills on both brokers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.client.admin.groups import Groups
from headrace.client.admin.topics import Topics
from headrace.client.connection import connection
from tests.interop import http_kills
from tests.interop.brokers import ApacheNode, Node, make_node
from tests.interop.logins import (
    ApacheOfAllProtocols,
    HeadraceOfAllProtocols,
    settings,
    signer,
)
from tests.sockets.server.a_secured_server import Certificates
from tests.sockets.services.http import documented
from tests.sockets.services.http.served import Served

ROUNDS = int(os.environ.get("ROUNDS", "3"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with ApacheNode(tmp_path_factory.mktemp("apache")) as node:
        documented.make_topics(node.bootstrap)
        # Apache Kafka makes the topic of its coordinators when somebody asks for one, and takes
        # its time: a consumer that seeks meanwhile is refused.
        Groups(connection(bootstrap=node.bootstrap, timeout_s=60)).is_there("testgroup")
        with Served(node.bootstrap) as door:
            yield door


def test_the_documented_requests_on_apache_kafka(served: Served) -> None:
    documented.everything(served)


def test_a_key_is_written_once_on_apache_kafka(served: Served) -> None:
    once = {"Idempotency-Key": "a"}
    body = {"records": [{"value": 1}]}
    first = served.ask("POST", "/topics/test1", body, kind=documented.JSON2, headers=once)
    again = served.ask("POST", "/topics/test1", body, kind=documented.JSON2, headers=once)
    assert first.status == 200 and again.body == first.body
    assert again.headers["Idempotency-Replayed"] == "true"


@pytest.mark.parametrize("kind", [HeadraceOfAllProtocols, ApacheOfAllProtocols])
def test_a_signed_token_opens_both_brokers_through_the_door(
    tmp_path: Path, kind: type[HeadraceOfAllProtocols] | type[ApacheOfAllProtocols]
) -> None:
    certificates = Certificates(tmp_path / "certificates")
    with kind(tmp_path / "node", settings(certificates)) as node:
        Topics(connection(bootstrap=node.bootstrap)).create("t", partitions=1)
        tls = {"security.protocol": "sasl_ssl", "ssl.ca.location": str(certificates.ca)}
        at = connection(bootstrap=f"localhost:{node.ports['SASL_SSL']}", overrides=tls)
        with Served(at, login=True) as door:
            body, kind_ = {"records": [{"value": 1}]}, documented.JSON2
            good = {"Authorization": f"Bearer {signer(certificates).token()}"}
            made = door.ask("POST", "/topics/t", body, kind=kind_, headers=good)
            assert made.status == 200, made
            once = good | {"Idempotency-Key": "a"}
            first = door.ask("POST", "/topics/t", body, kind=kind_, headers=once)
            again = door.ask("POST", "/topics/t", body, kind=kind_, headers=once)
            assert first.status == 200 and again.body == first.body, first
            read = door.ask("GET", "/topics/t/partitions/0/records?format=auto", headers=good)
            assert [each["value"] for each in read.json()] == [1, 1]
            wrong = signer(certificates).token(aud="elsewhere")
            refused = door.ask("GET", "/topics", headers={"Authorization": f"Bearer {wrong}"})
            assert refused.status == 401


@pytest.fixture(params=["headrace", pytest.param("apache", marks=pytest.mark.full)])
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    with make_node(request.param, tmp_path_factory.mktemp(request.param)) as running:
        yield running


def test_none_is_lost_and_none_doubled_while_doors_and_broker_are_killed(node: Node) -> None:
    Topics(connection(bootstrap=node.bootstrap)).create(http_kills.TOPIC, partitions=1)
    told = http_kills.run_rounds(node, ROUNDS)
    found = http_kills.judged(node.bootstrap, told)
    values = [value for _, value in found]
    assert len(values) == len(set(values)), "doubled"
    lost = told.offsets.keys() - set(values)
    assert not lost, "lost"
    strange = set(values) - told.offsets.keys()
    assert not strange, "nobody was told of these"
    assert {value: offset for offset, value in found} == told.offsets
    assert told.attempts > len(told.offsets), "nothing was repeated: the kills came too late"
