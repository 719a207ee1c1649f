"""Folders that `headrace format` has made are Kafka's: Apache Kafka starts on them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.brokers import ApacheNode
from tests.interop.clients import ConfluentKafka, Record
from tests.interop.topics import create_topic

DIRECTORY = "3J9mxgXtRDSPNWPwTdMuMw"


@pytest.mark.parametrize("way", ["standalone", "initial controllers"])
def test_apache_kafka_starts_on_a_folder_that_headrace_formatted(way: str, tmp_path: Path) -> None:
    node = ApacheNode(tmp_path)
    node.write_properties()
    quorum = ["--standalone"]
    if way == "initial controllers":
        address = f"127.0.0.1:{node.controller_port}"
        quorum = ["--initial-controllers", f"1@{address}:{DIRECTORY}"]
    command = [sys.executable, "-m", "headrace", "format", "--config", str(node.properties)]
    subprocess.run([*command, "--cluster-id", node.cluster_id, *quorum], check=True)
    with node:
        topic = create_topic(node.bootstrap, "orders")
        client = ConfluentKafka()
        assert client.produce(node.bootstrap, topic, "none", [Record(b"k", b"v", (), 1)]) == [0]
    written = (node.data / "meta.properties").read_text()
    assert f"cluster.id={node.cluster_id}" in written
    assert (DIRECTORY in written) == (way == "initial controllers")
