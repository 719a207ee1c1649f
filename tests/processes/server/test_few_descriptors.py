"""A node with few file descriptors: small requests that ask for many files do not end it.

A real process with a real limit; what happens inside is told in tests/unit/node/broker.
"""

import resource
import signal
import socket
import struct
import subprocess
import sys

import pytest

from headrace.wire.protocol.framing import decode_response, encode_request
from headrace.wire.protocol.messages import create_topics, metadata

DESCRIPTORS = 200
NAMES = 150  # each has a segment with two indexes: three files


@pytest.fixture
def node(tmp_path):
    def few_descriptors():
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))

    folder, said = tmp_path / "data", tmp_path / "said"
    with said.open("wb") as told:
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "headrace",
                "start",
                "--data",
                folder,
                "--listen",
                "127.0.0.1:0",
            ],
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
            preexec_fn=few_descriptors,
        )
    try:
        yield process, said
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def port_of(process):
    for line in process.stdout:
        if line.startswith("address"):
            return int(line.rpartition(":")[2])
    raise AssertionError("it did not start")


def ask(connection, messages, version, request):
    pieces = encode_request(messages, version, 7, "few", request)
    connection.sendall(b"".join(bytes(piece) for piece in pieces))
    (size,) = struct.unpack(">i", receive(connection, 4))
    return decode_response(messages, version, memoryview(receive(connection, size)))[1]


def receive(connection, size):
    got = connection.recv(size, socket.MSG_WAITALL)
    assert len(got) == size, "the node has ended"
    return got


def test_many_new_partitions_do_not_end_a_node_with_few_descriptors(node):
    process, said = node
    with socket.create_connection(("127.0.0.1", port_of(process)), timeout=300) as connection:
        wanted = [metadata.MetadataRequestTopic(name=f"asked-{n}") for n in range(NAMES)]
        request = metadata.MetadataRequest(wanted, allow_auto_topic_creation=True)
        made = ask(connection, metadata, 9, request)
        assert {topic.error_code for topic in made.topics} == {0}
        assert len(made.topics) == NAMES
        topic = create_topics.CreatableTopic("wide", 2 * NAMES, -1)
        made = ask(connection, create_topics, 7, create_topics.CreateTopicsRequest([topic], 60_000))
        assert [topic.error_code for topic in made.topics] == [0]
        again = ask(connection, metadata, 9, metadata.MetadataRequest(wanted))
        assert {len(topic.partitions) for topic in again.topics} == {1}
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) == 0
    assert "Traceback" not in said.read_text()
