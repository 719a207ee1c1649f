"""`headrace brokers` on a real broker: who is there, what is set, and by whom."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headrace.client.connection import ClientSettings
from headrace.client.wire import Wire
from headrace.testing import Broker
from headrace.wire.protocol.messages import alter_share_group_offsets as alter
from headrace.wire.protocol.messages import delete_groups, find_coordinator
from tests.sockets.cli.conftest import CommandLine


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"headrace.durability": "disk"}) as running:
        yield running


def test_brokers_are_listed(headrace: CommandLine) -> None:
    told = headrace.json("brokers", "list")
    [one] = told["brokers"]
    assert f"{one['host']}:{one['port']}" == headrace.bootstrap
    assert one["controller"] and one["free_bytes"] > 0
    assert headrace("brokers", "list").splitlines()[0] == f"cluster {told['cluster']}"


def test_settings_are_shown_with_who_set_them(headrace: CommandLine) -> None:
    shown = headrace("brokers", "describe")
    [line] = [one for one in shown.splitlines() if one.startswith("headrace.durability")]
    assert line.split() == ["headrace.durability", "disk", "start", "by", "a", "restart"]
    assert "\nnum.partitions" not in shown
    assert "\nnum.partitions" in headrace("brokers", "describe", "--all")
    rows = headrace("brokers", "describe", "--match", "log.retention").splitlines()[2:]
    assert rows and all("log.retention" in row for row in rows)
    told = headrace.json("brokers", "describe")
    assert told["settings"]["headrace.durability"]["source"] == "STATIC_BROKER_CONFIG"
    assert headrace.failure("brokers", "describe", "9") == "There is no broker 9; there are 1."


def test_settings_are_changed_and_a_slip_is_refused(headrace: CommandLine) -> None:
    headrace("brokers", "alter", "--config", "log.retention.ms=60000")
    assert "all brokers" in headrace("brokers", "describe", "--match", "log.retention.ms")
    headrace("brokers", "alter", "1", "--config", "log.retention.ms=70000")
    assert "this broker" in headrace("brokers", "describe", "--match", "log.retention.ms")
    headrace("brokers", "alter", "1", "--unset", "log.retention.ms")
    headrace("brokers", "alter", "--unset", "log.retention.ms")
    assert "default" in headrace("brokers", "describe", "--match", "log.retention.ms")
    slip = headrace.failure("brokers", "alter", "--config", "min.insync.replica=2")
    assert slip == "There is no setting min.insync.replica. Did you mean min.insync.replicas?"
    assert headrace.exit_code("brokers", "alter") == 2


def test_feature_levels_are_shown_and_changed(headrace: CommandLine) -> None:
    told = {one["name"]: one for one in headrace.json("brokers", "features")}
    assert told["transaction.version"] | {"name": ""} == {
        "name": "",
        "level": 2,
        "lowest": 0,
        "highest": 2,
        "served": True,
    }
    assert told["share.version"]["level"] == 1 and told["share.version"]["served"]
    lowered = headrace("brokers", "features", "transaction.version=1")
    assert ["transaction.version", "1", "0-2", "yes"] in [
        line.split() for line in lowered.splitlines()
    ]
    headrace("brokers", "features", "transaction.version=2")
    assert "There is no feature no.version" in headrace.failure(
        "brokers", "features", "no.version=1"
    )
    assert told["streams.version"]["level"] == 1 and told["streams.version"]["served"]
    assert headrace.exit_code("brokers", "features", "share.version=high") == 2


def test_share_groups_are_served_until_the_level_falls_and_there_is_none(
    headrace: CommandLine,
) -> None:
    level = {one["name"]: one["level"] for one in headrace.json("brokers", "features")}
    if not level["share.version"]:
        headrace("brokers", "features", "share.version=1")
    headrace("topics", "create", "jobs")
    host, port = headrace.bootstrap.rsplit(":", 1)
    with Wire(ClientSettings({"bootstrap.servers": headrace.bootstrap}), (host, int(port))) as wire:
        key = find_coordinator.FindCoordinatorRequest("", 0, ["workers"])
        assert wire.ask(find_coordinator, key).coordinators[0].error_code == 0
        part = alter.AlterShareGroupOffsetsRequestPartition(0, 0)
        topic = alter.AlterShareGroupOffsetsRequestTopic("jobs", [part])
        answer = wire.ask(alter, alter.AlterShareGroupOffsetsRequest("workers", [topic]))
        assert answer.responses[0].partitions[0].error_code == 0
        refused = headrace.failure("brokers", "features", "share.version=0")
        assert "there are 1 share groups, such as workers" in refused
        gone = wire.ask(delete_groups, delete_groups.DeleteGroupsRequest(["workers"]))
        assert gone.results[0].error_code == 0
    headrace("brokers", "features", "share.version=0")
    assert not {one["name"]: one["level"] for one in headrace.json("brokers", "features")}[
        "share.version"
    ]
