"""`cluster status` says why a replica is not in the ISR, as far as the cluster tells it."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli.cluster import cluster as command
from headrace.client.admin.cluster import LogFolder
from headrace.client.admin.cluster_status import ClusterStatus, NodeStatus, explain_missing
from headrace.client.admin.placement.replicas import PartitionReplicas
from headrace.client.records import TopicPartition

PLACE = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def partition(**fields: Any) -> PartitionReplicas:
    return PartitionReplicas(PLACE, 1, [1, 2, 3], [1, 2], **fields)


def nodes(*fenced: int) -> list[NodeStatus]:
    return [
        NodeStatus(number, f"h:{number}", None, ["broker"], number in fenced)
        for number in (1, 2, 3)
    ]


def folder(lag: int | None = 0, usable: int | None = 1 << 30, **fields: Any) -> LogFolder:
    lags = {} if lag is None else {PLACE: lag}
    return LogFolder(3, "/data", 1 << 40, usable, lags=lags, **fields)


@pytest.mark.parametrize(
    ("folders", "why"),
    [
        ([], "the broker does not answer"),
        ([folder(12)], "it is 12 records behind"),
        ([folder()], "it is catching up"),
        ([folder(None)], "it has no log there yet"),
        ([folder(7, usable=4_096)], "its disk is full"),
        ([folder(None, usable=0)], "its disk is full"),
        ([folder(7, usable=None)], "it is 7 records behind"),  # before DescribeLogDirs v4
    ],
)
def test_why_a_replica_is_out_of_sync(folders: list[LogFolder], why: str) -> None:
    [found] = explain_missing([partition()], nodes(), folders)
    assert (found.place, found.broker, found.why) == (PLACE, 3, why)


def test_a_broker_that_is_down_or_whose_folder_failed() -> None:
    [found] = explain_missing([partition()], nodes(3), [folder(5)])
    assert found.why == "the broker is down"
    failed = folder(None, usable=None, failure="KAFKA_STORAGE_ERROR")
    [found] = explain_missing([partition(offline=[3])], nodes(), [failed])
    assert found.why == "its data folder is offline"


def test_only_the_folder_that_has_the_replica_counts() -> None:
    other = LogFolder(3, "/other", 1 << 40, 0)
    [found] = explain_missing([partition()], nodes(), [folder(7), other])
    assert found.why == "it is 7 records behind"


def test_a_full_folder_alone_is_a_trouble() -> None:
    status = ClusterStatus("c", nodes(), 1, 1, 1, [1, 2, 3], [], 2)
    assert status.is_well
    status.full_folders = [folder(usable=0)]
    assert not status.is_well


def test_the_command_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    status = ClusterStatus("c", nodes(), 1, 1, 1, [1, 2, 3], [], 2)
    status.under_replicated = [PLACE, OTHER]
    full = folder(3, usable=0)
    status.full_folders = [full]
    missing = [partition(), PartitionReplicas(OTHER, 1, [1, 2, 3], [1, 2])]
    full.lags[OTHER] = 0
    status.out_of_sync = explain_missing(missing, nodes(), [full])
    assert not status.is_well
    command._show(status)
    shown = capsys.readouterr().out
    assert "2 replicas of broker 3 (orders-0, orders-1): its disk is full" in shown
    assert "the disk of the data folder /data of broker 3 is full" in shown
    said = command._as_object(status)
    assert said["full_folders"] == [{"broker": 3, "folder": "/data"}]
    assert said["out_of_sync"] == [
        {"partition": str(each), "broker": 3, "why": "its disk is full"} for each in (PLACE, OTHER)
    ]
