"""The nodes of a cluster on one machine, before any of them runs."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from headrace.server.local_cluster.cluster import OpenCluster, Wanted, open_cluster
from headrace.server.local_cluster.plan import (
    FILE_NAME,
    ClusterPlan,
    free_ports,
    new_plan,
    read_plan,
    replication_of,
)
from headrace.server.real_disk import RealDisk
from headrace.server.settings import CannotStart, Settings, load_settings


class Chance:
    def __init__(self) -> None:
        self.drawn = 0

    def __call__(self, count: int) -> bytes:
        self.drawn += 1
        return hashlib.sha256(str(self.drawn).encode()).digest()[:count]


def plan(brokers: int) -> ClusterPlan:
    return new_plan(brokers, Chance(), lambda count: [40_000 + n for n in range(count)])


def opened(folder: Path, **wanted: object) -> OpenCluster:
    usual: dict[str, object] = {"brokers": 3, "listen": "127.0.0.1:19092", "overrides": {}}
    found = Wanted(data=str(folder / "data"), **(usual | wanted))  # type: ignore[arg-type]
    return open_cluster(found, randomness=Chance(), wall_ms=1)


def settings_of(cluster: OpenCluster, node: int) -> Settings:
    order = cluster.orders[node]
    return load_settings(overrides=order.overrides, data=order.data, config_file=order.config_file)


def test_the_first_three_vote_and_fewer_than_three_have_one_controller() -> None:
    assert [node.id for node in plan(5).controllers] == [1, 2, 3]
    assert [node.id for node in plan(2).controllers] == [1]
    assert plan(5).stop_order() == [[4, 5], [3], [2], [1]]


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (7, "3", "2")]
)
def test_what_is_written_has_replicas(brokers: int, replicas: str, in_sync: str) -> None:
    found = replication_of(brokers)
    assert found["default.replication.factor"] == found["offsets.topic.replication.factor"]
    assert (found["default.replication.factor"], found["min.insync.replicas"]) == (
        replicas,
        in_sync,
    )


def test_nodes_have_ports_in_a_row_and_folders_beside_the_first(tmp_path: Path) -> None:
    cluster = opened(tmp_path)
    second = settings_of(cluster, 2)
    assert (second.node_id, second.log_dir) == (2, f"{tmp_path}/data-2")
    assert [str(each) for each in second.listeners] == ["127.0.0.1:19093"]
    assert second.place.is_one_of_many and len(second.place.bootstrap) == 3
    assert (tmp_path / "data-2" / "meta.properties").exists()
    cluster.close()


def test_a_second_start_of_the_same_folder_is_refused(tmp_path: Path) -> None:
    cluster = opened(tmp_path)
    with pytest.raises(CannotStart, match="runs already"):
        opened(tmp_path)
    cluster.close()
    opened(tmp_path).close()


def test_the_next_start_finds_the_same_cluster(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.close()
    second = opened(tmp_path, brokers=None)
    second.close()
    assert second.plan == first.plan and len(second.orders) == 3


def test_a_start_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.close()
    written = RealDisk().read_file(f"{tmp_path}/data/{FILE_NAME}")
    for name in ("data-2", "data-3"):
        (tmp_path / name / "meta.properties").unlink()
    before = written.replace(b'"formatted": true', b'"formatted": false')
    (tmp_path / "data" / FILE_NAME).write_bytes(before)
    second = opened(tmp_path)
    second.close()
    assert second.plan == first.plan
    for node in second.plan.nodes[1:]:
        text = (tmp_path / f"data-{node.id}" / "meta.properties").read_text()
        assert f"directory.id={node.directory_id}" in text, "the others know it by this one"


def test_a_lost_folder_is_not_taken_for_the_one_that_was_lost(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.close()
    for path in sorted((tmp_path / "data-2").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    opened(tmp_path).close()
    text = (tmp_path / "data-2" / "meta.properties").read_text()
    assert f"directory.id={first.plan.nodes[1].directory_id}" not in text
    assert not list((tmp_path / "data-2" / "__cluster_metadata-0").iterdir()), "it votes nowhere"


def test_settings_of_ones_own_win_but_for_what_the_plan_decides(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("default.replication.factor=1\nnum.partitions=6\n")
    cluster = opened(tmp_path, overrides={"min.insync.replicas": "1"}, config_file=file)
    cluster.close()
    values = settings_of(cluster, 1).values
    assert values["default.replication.factor"] == 1 and values["num.partitions"] == 6
    assert values["min.insync.replicas"] == 1
    assert values["offsets.topic.replication.factor"] == 3
    with pytest.raises(CannotStart, match="node.id is decided by --brokers"):
        opened(tmp_path, overrides={"node.id": "7"})


def test_a_cluster_does_not_shrink(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(CannotStart, match="start it with --brokers 3"):
        opened(tmp_path, brokers=2)
    grown = opened(tmp_path, brokers=4)
    grown.close()
    assert [node.is_controller for node in grown.plan.nodes] == [True, True, True, False]


def test_a_damaged_plan_is_said(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "data" / FILE_NAME).write_text("{")
    with pytest.raises(CannotStart, match="cannot be understood"):
        read_plan(RealDisk(), f"{tmp_path}/data")


def test_free_ports_are_not_the_same() -> None:
    assert len(set(free_ports(5))) == 5
