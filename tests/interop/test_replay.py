"""`headrace replay` on Headrace and on Apache Kafka: killed in the middle, each record once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Admin, Consumer, Producer
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.services.replay.journal import read_journal
from tests.interop.brokers import Node, make_node
from tests.soak.delay_instances import wait_until

PROGRAM = str(Path(sys.executable).with_name("headrace"))
RECORDS = 4_000
KEYS = 50
KILLS = 3


@pytest.fixture(scope="module", params=["headrace", "apache"])
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    with make_node(request.param, tmp_path_factory.mktemp(request.param)) as running:
        with Producer(running.bootstrap) as producer:
            Admin(running.bootstrap).topics.create("seats", partitions=3)
            for number in range(RECORDS):
                producer.send_one_way("seats", b"%d" % number, key=f"row-{number % KEYS}")
        yield running


def headrace(node: Node, *words: str) -> list[str]:
    return [PROGRAM, *words, "--bootstrap", node.bootstrap, "--json"]


def answered(node: Node, *words: str) -> Any:
    done = subprocess.run(headrace(node, *words), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def copied(node: Node) -> int:
    found = read_journal(ClientSettings({"bootstrap.servers": node.bootstrap})).copies.get("killed")
    return 0 if found is None else found.copied


def test_a_copy_that_is_killed_again_and_again_is_whole(node: Node) -> None:
    """Also with the broker killed beside it: nothing twice, nothing lost, keys in order."""
    Admin(node.bootstrap).topics.create("seats-copy", partitions=5)
    named = ("replay", "copy", "seats", "--to", "seats-copy", "--name", "killed")
    words = (*named, "--execute")
    # So slowly that on a busy machine too each life ends in the middle.
    slowly = headrace(node, *words, "--rate", "400")
    for number in range(KILLS):
        before = copied(node)
        copying = subprocess.Popen(slowly, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda before=before: copied(node) > before, "nothing is copied")  # type: ignore[misc]
        copying.kill()
        copying.wait()
        if number == KILLS // 2:
            node.kill()
            node.start()
    assert answered(node, *named)["goes_on"]
    done = answered(node, *words)
    assert (done["copied"], done["left"], done["looped"]) == (RECORDS, 0, 0)

    last: dict[bytes, int] = {}
    seen: list[int] = []
    reader = RecordReader(ClientSettings({"bootstrap.servers": node.bootstrap}), "seats-copy")
    for record in reader.records():
        number = int(record.value or b"-1")
        assert last.get(record.key or b"", -1) < number
        last[record.key or b""] = number
        seen.append(number)
    reader.close()
    assert sorted(seen) == list(range(RECORDS))


def test_a_group_goes_back_reads_again_and_is_put_back(node: Node) -> None:
    with Consumer(node.bootstrap, topics=["seats"], group="ushers") as consumer:
        read = 0
        while read < RECORDS:
            read += len(consumer.batch(timeout_s=30))
        consumer.commit()
    admin = Admin(node.bootstrap)
    before = admin.groups.committed("ushers")
    words = ("replay", "group", "ushers", "--topic", "seats", "--from-offset", "500")
    plan = answered(node, *words)
    assert plan["again"] == RECORDS - 3 * 500
    answered(node, *words, "--execute")
    assert set(admin.groups.committed("ushers").values()) == {500}
    with Consumer(node.bootstrap, topics=["seats"], group="ushers") as consumer:
        again = 0
        while again < plan["again"]:
            again += len(consumer.batch(timeout_s=30))
    answered(node, "replay", "undo", "ushers", "--execute")
    assert admin.groups.committed("ushers") == before
