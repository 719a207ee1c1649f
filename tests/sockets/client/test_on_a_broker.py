"""The client on a real broker: what a reader stops at, and our own codecs on the wire."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.client.admin.placement.log_folders import sizes_by_partition
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings, addresses, connection
from headrace.client.errors import ClientError, Unreachable
from headrace.client.lookup.record_reader import END, RecordReader
from headrace.client.producer.record_writer import RecordWriter
from headrace.client.wire import Wire
from headrace.testing import Broker
from headrace.wire.protocol.messages import api_versions, describe_cluster
from tests.sockets.nobody import nobody

pytestmark = pytest.mark.usefixtures("quick_producers")


@pytest.fixture(scope="module")
def at() -> Iterator[ClientSettings]:
    with Broker() as broker:
        yield connection(bootstrap=broker.bootstrap)


def write(at: ClientSettings, topic: str, *values: bytes) -> None:
    with RecordWriter(at, topic) as writer:
        for value in values:
            writer.write(value)


def test_a_reader_stops_at_the_end_it_saw_when_it_began(at: ClientSettings) -> None:
    write(at, "ends", b"before")
    reader = RecordReader(at, "ends")
    write(at, "ends", b"after")
    assert [record.value for record in reader.records()] == [b"before"]
    reader.close()


@pytest.mark.parametrize("follow", [False, True])
def test_only_a_follower_lets_the_broker_hold_back_an_empty_answer(
    at: ClientSettings, monkeypatch: pytest.MonkeyPatch, follow: bool
) -> None:
    """A partition that ends with a transaction marker is read when an answer is empty."""
    waits_ms = []
    made = ClientSettings.consumer

    def noted(at: ClientSettings, **more: Any) -> Any:
        waits_ms.append(more["fetch_wait_max_ms"])
        return made(at, **more)

    monkeypatch.setattr(ClientSettings, "consumer", noted)
    write(at, "held-back", b"x")
    RecordReader(at, "held-back", follow=follow).close()
    assert waits_ms == [500 if follow else 5]


def test_a_follower_from_the_end_sees_only_what_comes(at: ClientSettings) -> None:
    write(at, "followed", b"before")
    reader = RecordReader(at, "followed", start=END, follow=True)
    write(at, "followed", b"after")
    assert next(reader.records()).value == b"after"
    reader.close()


def test_a_missing_value_is_not_an_empty_one(at: ClientSettings) -> None:
    with RecordWriter(at, "nulls") as writer:
        writer.write(None, key=b"gone")
        writer.write(b"", key=b"empty")
    reader = RecordReader(at, "nulls")
    assert [(r.key, r.value) for r in reader.records()] == [(b"gone", None), (b"empty", b"")]
    reader.close()


def test_a_record_that_is_too_large_is_told(at: ClientSettings) -> None:
    Topics(at).create("small", settings={"max.message.bytes": "1000"})
    with pytest.raises(ClientError, match="1 of 1 records were not written"):
        write(at, "small", bytes(5_000))


def test_our_own_codecs_ask_and_understand(at: ClientSettings) -> None:
    [address] = addresses(at.bootstrap)
    with Wire(at, address) as wire:
        answer = wire.ask(describe_cluster, describe_cluster.DescribeClusterRequest())
        assert answer.cluster_id == Topics(at).cluster.cluster_id
        newest = wire.version_of(api_versions)
        assert newest in api_versions.VERSIONS
        unknown = SimpleNamespace(API_KEY=999, VERSIONS=range(3), NAME="NoSuchThing")
        with pytest.raises(ClientError, match="does not know NoSuchThing"):
            wire.ask(unknown, None)


def test_sizes_leave_out_a_broker_that_does_not_answer(at: ClientSettings) -> None:
    write(at, "sized", b"x" * 1000)
    all_of_them = [*addresses(nobody()), *addresses(at.bootstrap)]
    sizes = sizes_by_partition(at, all_of_them, {"sized": [0]})
    assert sizes["sized", 0] > 1000


def test_a_server_that_speaks_something_else_is_told_apart() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_in_http() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(4096)
                peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=answer_in_http)
        thread.start()
        at = connection(bootstrap=f"127.0.0.1:{server.getsockname()[1]}")
        with (
            pytest.raises(ClientError, match="not a Kafka broker"),
            Wire(at, server.getsockname()) as wire,
        ):
            wire.version_of(api_versions)
        thread.join()


def test_a_protocol_that_nobody_knows_is_refused_in_words() -> None:
    at = connection(overrides={"security.protocol": "SASL_SLS"})
    with pytest.raises(ClientError, match="sasl_sls is not a known security.protocol"):
        Wire(at, ("localhost", 9092))


@pytest.mark.integration
def test_nobody_there_is_known_soon() -> None:
    with pytest.raises(Unreachable, match="No Kafka broker answers"):
        Topics(connection(bootstrap=nobody(), timeout_s=60))
