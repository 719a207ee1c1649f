"""Three brokers as processes, one of them on a disk that fails: the others lead, and it returns."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from headrace.client.admin.cluster_status import ClusterStatus, read_status
from headrace.client.connection import ClientSettings
from headrace.testing import Cluster
from tests.cluster.failing_disks import DyingDisk, filled, no_file_beyond, small_disk
from tests.cluster.partition import create_led_by, in_sync, lead_again, leader
from tests.cluster.test_a_leader_dies import Writer, read_all
from tests.patience import until

FAILING = 2  # the node whose disk fails
OTHERS = (1, 3)
LARGE = 20_000  # bytes of a log


def status(cluster: Cluster, asked: Iterable[int] = OTHERS) -> ClusterStatus:
    bootstrap = ",".join(cluster.address(node) for node in asked)
    return read_status(ClientSettings({"bootstrap.servers": bootstrap}))


def require_all_once(cluster: Cluster, writer: Writer) -> None:
    assert writer.refused == []
    found = read_all(cluster, "orders", len(writer.acknowledged))
    assert sorted(found) == sorted(writer.acknowledged), "each one, and each one once"


def test_a_leader_whose_disk_is_full_gives_way_and_returns(tmp_path: Path) -> None:
    data = tmp_path / "data-2"
    with small_disk(data), Cluster(data=tmp_path / "data") as cluster:
        create_led_by(cluster, FAILING, *OTHERS)
        writer = Writer(cluster, "orders")
        writer.write_until(500)
        assert leader(cluster, asked=1) == FAILING
        with filled(data):
            writer.write_until(1_500)
            until(lambda: in_sync(cluster, asked=1) == {*OTHERS})
            assert leader(cluster, asked=1) in OTHERS
            until(lambda: [each.broker for each in status(cluster).full_folders] == [FAILING])
            seen = status(cluster)
            missing = {each.broker: each.why for each in seen.out_of_sync}
            assert missing == {FAILING: "its disk is full"} and not seen.is_well
        until(lambda: in_sync(cluster, asked=1) == {1, 2, 3})
        until(lambda: status(cluster).is_well)
        lead_again(cluster, FAILING)
        writer.write_until(len(writer.acknowledged) + 500)
        writer.finish()
        require_all_once(cluster, writer)
        log = cluster.log(FAILING)
        assert log.count("refuses appends (No space left on device): partitions") == 1
        assert log.count("takes appends again") == 1
        assert "Traceback" not in log


def test_a_node_whose_disk_dies_is_left_and_returns_with_it(tmp_path: Path) -> None:
    data = tmp_path / "data-2"
    with DyingDisk(data) as disk, Cluster(data=tmp_path / "data") as cluster:
        create_led_by(cluster, FAILING, *OTHERS)
        writer = Writer(cluster, "orders")
        writer.write_until(500)
        disk.die()
        writer.write_until(1_500)
        until(lambda: leader(cluster, asked=1) in OTHERS)
        assert "refuses appends (Input/output error)" in cluster.log(FAILING)
        cluster.kill(FAILING)
        disk.repair()
        cluster.restore(FAILING)
        until(lambda: in_sync(cluster, asked=1) == {1, 2, 3})
        lead_again(cluster, FAILING)
        writer.write_until(len(writer.acknowledged) + 500)
        writer.finish()
        require_all_once(cluster, writer)


def test_a_leader_whose_writes_are_refused_gives_way_and_returns(tmp_path: Path) -> None:
    """Reads and flushes still work, and so does the small metadata log."""
    log = tmp_path / "data-2" / "orders-0" / f"{0:020d}.log"
    with Cluster(data=tmp_path / "data") as cluster:
        create_led_by(cluster, FAILING, *OTHERS)
        writer = Writer(cluster, "orders")
        writer.write_until(500)
        while log.stat().st_size < LARGE:
            writer.write_until(len(writer.acknowledged) + 500)
        assert leader(cluster, asked=1) == FAILING
        with no_file_beyond(LARGE, cluster.pid(FAILING)):
            writer.write_until(len(writer.acknowledged) + 1_500)
            until(lambda: leader(cluster, asked=1) in OTHERS)
            until(lambda: in_sync(cluster, asked=1) == {*OTHERS})
        assert "refuses appends (File too large): partitions" in cluster.log(FAILING)
        until(lambda: in_sync(cluster, asked=1) == {1, 2, 3})
        lead_again(cluster, FAILING)
        writer.write_until(len(writer.acknowledged) + 500)
        writer.finish()
        require_all_once(cluster, writer)
