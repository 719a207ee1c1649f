"""The nodes of a cluster on one machine, before any of them runs."""

from __future__ import annotations

import errno
import hashlib
import shutil
import socket
import threading
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.cli.node.cluster_start import welcome
from headrace.cli.secured.folder import SecurityFolder
from headrace.node.broker.folders.identity import Identity
from headrace.node.process.folders.folder_format import format_folder, levels_of
from headrace.node.process.folders.real_disk import FolderLock, RealDisk
from headrace.node.process.local_cluster.cluster import OpenCluster, Wanted, open_cluster
from headrace.node.process.local_cluster.folders import identity_in
from headrace.node.process.local_cluster.plan import (
    FILE_NAME,
    ClusterPlan,
    free_ports,
    is_free,
    lives_in,
    new_plan,
    read_plan,
    replication_of,
)
from headrace.node.process.settings.settings import CannotStart, Settings, load_settings
from headrace.wire.protocol import uuids


class Chance:
    def __init__(self, drawn: int = 0) -> None:
        self.drawn = drawn

    def __call__(self, count: int) -> bytes:
        self.drawn += 1
        return hashlib.sha256(str(self.drawn).encode()).digest()[:count]


def plan(brokers: int) -> ClusterPlan:
    return new_plan(brokers, Chance(), lambda count: [40_000 + n for n in range(count)])


def opened(folder: Path, drawn: int = 0, **wanted: object) -> OpenCluster:
    usual: dict[str, object] = {"brokers": 3, "listen": "127.0.0.1:19092", "overrides": {}}
    found = Wanted(data=str(folder / "data"), **(usual | wanted))  # type: ignore[arg-type]
    return open_cluster(found, randomness=Chance(drawn), wall_ms=1)


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


def test_controllers_ask_for_a_login_that_only_their_nodes_have(tmp_path: Path) -> None:
    cluster = opened(tmp_path)
    cluster.close()
    logins = set()
    for node in (1, 2, 3):
        values = cluster.orders[node].overrides
        (listener,) = settings_of(cluster, node).controllers
        assert listener.protocol == "SASL_PLAINTEXT"
        logins.add(values["listener.name.controller.plain.sasl.jaas.config"])
    (login,) = logins
    again = opened(tmp_path, drawn=100)
    again.close()
    assert login not in again.orders[1].overrides.values(), "another password at each start"
    secret = login.partition('password="')[2].partition('"')[0]
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert kept and not any(secret.encode() in path.read_bytes() for path in kept)


def test_a_listener_of_controllers_that_the_user_maps_stays_as_it_is_mapped(tmp_path: Path) -> None:
    mapped = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"}
    cluster = opened(tmp_path, overrides=mapped)
    cluster.close()
    (listener,) = settings_of(cluster, 1).controllers
    assert listener.protocol == "PLAINTEXT"
    assert not any("jaas" in name for name in cluster.orders[1].overrides)


def test_nodes_have_as_many_data_folders_as_the_first(tmp_path: Path) -> None:
    places = (f"{tmp_path}/data", f"{tmp_path}/more")
    cluster = opened(tmp_path, brokers=4, log_dirs=places)
    cluster.close()
    fourth = cluster.orders[4].settings()
    assert fourth.log_dirs == (f"{tmp_path}/data-4", f"{tmp_path}/more-4")
    assert fourth.log_dir == f"{tmp_path}/data-4"
    (tmp_path / "more-4" / "orders-0").mkdir(parents=True)
    with pytest.raises(CannotStart, match="still holds 1 partitions"):
        opened(tmp_path, brokers=3)


def test_the_plan_knows_the_data_folders_and_none_is_forgotten(tmp_path: Path) -> None:
    places = (f"{tmp_path}/data", f"{tmp_path}/more")
    opened(tmp_path, log_dirs=places).close()
    again = opened(tmp_path)
    again.close()
    assert again.orders[2].settings().log_dirs == (f"{tmp_path}/data-2", f"{tmp_path}/more-2")
    (tmp_path / "more-3" / "orders-0").mkdir(parents=True)
    with pytest.raises(CannotStart, match="holds 1 partitions in .*/more and beside it"):
        opened(tmp_path, log_dirs=places[:1])
    (tmp_path / "more-3" / "orders-0").rmdir()
    without = opened(tmp_path, log_dirs=places[:1])
    without.close()
    assert without.orders[2].settings().log_dirs == (f"{tmp_path}/data-2",)


def test_nodes_have_ports_in_a_row_and_folders_beside_the_first(tmp_path: Path) -> None:
    cluster = opened(tmp_path)
    second = settings_of(cluster, 2)
    assert (second.node_id, second.log_dir) == (2, f"{tmp_path}/data-2")
    assert [str(each) for each in second.listeners] == ["127.0.0.1:19093"]
    assert second.cluster.is_one_of_many and len(second.cluster.bootstrap) == 3
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
    assert second.plan.nodes == first.plan.nodes
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


def test_a_cluster_loses_only_brokers_that_hold_nothing(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(CannotStart, match="which stay: start it with --brokers 3"):
        opened(tmp_path, brokers=2)
    grown = opened(tmp_path, brokers=4)
    grown.close()
    assert [node.is_controller for node in grown.plan.nodes] == [True, True, True, False]
    (tmp_path / "data-4" / "orders-0").mkdir()
    with pytest.raises(CannotStart, match="Broker 4 .* still holds 1 partitions"):
        opened(tmp_path, brokers=3)
    (tmp_path / "data-4" / "orders-0").rmdir()
    shrunk = opened(tmp_path, brokers=3)
    shrunk.close()
    assert list(shrunk.orders) == [1, 2, 3] and (tmp_path / "data-4").exists()


def one(folder: Path) -> Identity:
    """A folder that a node alone has used."""
    settings = load_settings(data=folder / "data")
    return format_folder(
        RealDisk(),
        settings,
        cluster_id=None,
        standalone=True,
        controllers=None,
        levels=levels_of({}),
        randomness=Chance(100),
        wall_ms=1,
    )


def test_a_folder_of_one_becomes_the_first_of_three(tmp_path: Path) -> None:
    identity = one(tmp_path)
    cluster = opened(tmp_path)
    cluster.close()
    assert cluster.plan.cluster_id == identity.cluster_id
    assert [node.is_controller for node in cluster.plan.nodes] == [True, True, True]
    assert cluster.former_min_in_sync == 1, "until its controller has raised it"
    for number in (2, 3):
        found = identity_in(RealDisk(), f"{tmp_path}/data-{number}")
        assert found is not None and found.cluster_id == identity.cluster_id
        metadata = tmp_path / f"data-{number}" / "__cluster_metadata-0"
        assert not list(metadata.iterdir()), "it joins a quorum and begins none"


def test_growth_goes_on_wherever_it_was_cut_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes one write more each time, until nothing is left to do."""
    identity = one(tmp_path)
    write = RealDisk.write_file
    left = 0

    class PowerCut(Exception):
        pass

    def write_some(disk: RealDisk, path: str, pieces: Iterable[bytes]) -> None:
        nonlocal left
        if not left:
            raise PowerCut
        left -= 1
        write(disk, path, pieces)

    monkeypatch.setattr(RealDisk, "write_file", write_some)
    cuts = 0
    while True:
        left = cuts % 4
        try:
            grown = opened(tmp_path)
        except PowerCut:
            cuts += 1
            continue
        break
    grown.close()
    assert cuts > 4, "it was cut short at several places"
    assert {node.formatted for node in grown.plan.nodes} == {True}
    folders = [tmp_path / name for name in ("data", "data-2", "data-3")]
    found = [identity_in(RealDisk(), str(folder)) for folder in folders]
    assert [each and each.node_id for each in found] == [1, 2, 3]
    assert {each and each.cluster_id for each in found} == {identity.cluster_id}
    assert found[0] is not None and found[0].directory_id == identity.directory_id


def test_one_controller_of_two_brokers_gets_two_more_with_the_third(tmp_path: Path) -> None:
    first = opened(tmp_path, brokers=2)
    first.close()
    grown = opened(tmp_path, brokers=3)
    grown.close()
    assert [node.is_controller for node in grown.plan.nodes] == [True, True, True]
    assert grown.plan.nodes[0] == first.plan.nodes[0]
    assert settings_of(grown, 2).cluster.is_controller


def test_the_plan_is_found_when_the_first_folder_is_lost(tmp_path: Path) -> None:
    first = opened(tmp_path, brokers=4)
    first.close()
    shutil.rmtree(tmp_path / "data")
    assert lives_in(str(tmp_path / "data"))
    again = opened(tmp_path, drawn=50, brokers=None)
    again.close()
    assert again.plan.cluster_id == first.plan.cluster_id and len(again.plan.nodes) == 4
    found = identity_in(RealDisk(), f"{tmp_path}/data")
    assert found is not None
    assert uuids.to_text(found.directory_id) != first.plan.nodes[0].directory_id


def test_without_a_majority_of_controllers_nothing_is_formatted(tmp_path: Path) -> None:
    opened(tmp_path).close()
    for name in ("data", "data-3"):
        shutil.rmtree(tmp_path / name)
    with pytest.raises(CannotStart, match="2 of 3 controllers have lost their data folders"):
        opened(tmp_path)
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_folders_of_another_cluster_are_not_taken(tmp_path: Path) -> None:
    opened(tmp_path).close()
    shutil.rmtree(tmp_path / "data")
    one(tmp_path)
    assert not lives_in(str(tmp_path / "data")), "a cluster of one, with strangers beside it"
    with pytest.raises(CannotStart, match="data-2 belongs to the cluster"):
        opened(tmp_path)


def test_an_old_folder_that_was_replaced_is_refused(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "data-2").rename(tmp_path / "old")
    opened(tmp_path, drawn=50).close()
    shutil.rmtree(tmp_path / "data-2")
    (tmp_path / "old").rename(tmp_path / "data-2")
    with pytest.raises(CannotStart, match="is an old folder of broker 2"):
        opened(tmp_path, drawn=60)


def test_nodes_of_a_secured_cluster_log_in_with_a_password_of_this_life(tmp_path: Path) -> None:
    security = tmp_path / "security"
    SecurityFolder(security).write(
        user="admin",
        address="localhost:9092",
        hosts=["localhost"],
        now=datetime(2026, 11, 17, tzinfo=UTC),
    )
    cluster = opened(tmp_path, secure=security)
    cluster.close()
    settings = cluster.orders[2].settings()
    assert {each.name: each.protocol for each in settings.listeners} == {
        "SASL_SSL": "SASL_SSL",
        "NODES": "SASL_SSL",
    }
    assert settings.cluster.broker_listener == "NODES"
    assert settings.cluster.controller_protocol == "SASL_SSL"
    assert "User:admin" in settings.given["super.users"]
    assert settings.given["super.users"].endswith("User:headrace-nodes")
    again = opened(tmp_path, drawn=50, secure=security)
    again.close()
    login = "listener.name.controller.plain.sasl.jaas.config"
    assert settings.given[login] == cluster.orders[1].overrides[login], "all nodes the same"
    assert settings.given[login] != again.orders[2].overrides[login], "but not for long"
    for order in (cluster.orders[1], again.orders[1]):
        assert "password" not in repr(order)
    with pytest.raises(CannotStart, match="inter.broker.listener.name is decided by --brokers"):
        opened(tmp_path, secure=security, overrides={"inter.broker.listener.name": "SASL_SSL"})
    with pytest.raises(CannotStart, match="`headrace security init` writes it"):
        opened(tmp_path, secure=tmp_path / "nowhere")


def test_a_file_where_a_folder_should_be_is_said(tmp_path: Path) -> None:
    one(tmp_path)
    (tmp_path / "data-2").write_text("not a folder")
    with pytest.raises(CannotStart, match="data-2 of broker 2 cannot be made: File exists"):
        opened(tmp_path)
    (tmp_path / "data-2").unlink()
    opened(tmp_path).close()


def test_configured_voters_cannot_grow(tmp_path: Path) -> None:
    one(tmp_path)
    (
        tmp_path / "data" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    ).unlink()
    with pytest.raises(CannotStart, match="kraft.version 0"):
        opened(tmp_path)
    assert not (tmp_path / "data" / FILE_NAME).exists()


def test_a_damaged_plan_is_said(tmp_path: Path) -> None:
    opened(tmp_path).close()
    (tmp_path / "data" / FILE_NAME).write_text("{")
    with pytest.raises(CannotStart, match="cannot be understood"):
        read_plan(RealDisk(), f"{tmp_path}/data")
    (tmp_path / "data" / FILE_NAME).unlink()
    (tmp_path / "data" / FILE_NAME).mkdir()  # as any file that the system does not give us
    with pytest.raises(CannotStart, match="cannot be read: Is a directory"):
        read_plan(RealDisk(), f"{tmp_path}/data")


@pytest.mark.parametrize(
    ("wanted", "sentence"),
    [
        ({"listen": "localhost"}, "--listen must be HOST:PORT, not 'localhost'"),
        ({"listen": "127.0.0.1:65534"}, "not 3 ports from 65534 on: see --listen"),
        ({"listen": "nowhere.invalid:0"}, "Cannot listen on nowhere.invalid:0"),
        ({"metrics": "9100"}, "--metrics must be HOST:PORT, not '9100'"),
        ({"metrics": "127.0.0.1:65535"}, "not 3 ports from 65535 on: see --metrics"),
    ],
)
def test_a_wrong_address_is_told_before_anything_is_written(
    tmp_path: Path, wanted: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(CannotStart, match=sentence):
        opened(tmp_path, **wanted)
    assert not (tmp_path / "data").exists()


def test_metrics_have_ports_in_a_row_too(tmp_path: Path) -> None:
    cluster = opened(tmp_path, metrics="[::1]:19100")
    cluster.close()
    assert cluster.orders[3].settings().metrics == ("::1", 19102)


def test_several_lost_folders_are_filled_again_at_once(tmp_path: Path) -> None:
    first = opened(tmp_path, brokers=5)
    first.close()
    for name in ("data-2", "data-4", "data-5"):
        shutil.rmtree(tmp_path / name)
    again = opened(tmp_path, drawn=50, brokers=6)
    again.close()
    assert len(again.plan.nodes) == 6 and again.plan.cluster_id == first.plan.cluster_id
    assert read_plan(RealDisk(), f"{tmp_path}/data-5") == again.plan


def test_a_copy_of_the_plan_may_be_refused_but_not_the_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(tmp_path).close()
    write = RealDisk.write_file
    refused = f"{tmp_path}/data-2/{FILE_NAME}"

    def write_elsewhere(disk: RealDisk, path: str, pieces: Iterable[bytes]) -> None:
        if path == refused:
            raise OSError(errno.EROFS, "Read-only file system")
        write(disk, path, pieces)

    monkeypatch.setattr(RealDisk, "write_file", write_elsewhere)
    opened(tmp_path, brokers=4).close()
    refused = f"{tmp_path}/data/{FILE_NAME}"
    with pytest.raises(CannotStart, match="cannot be written: Read-only file system"):
        opened(tmp_path, brokers=5)


def test_a_cluster_is_not_named_by_the_folder_of_another_broker(tmp_path: Path) -> None:
    opened(tmp_path).close()
    wanted = Wanted(f"{tmp_path}/data-2", None, "127.0.0.1:19092", {})
    with pytest.raises(CannotStart, match="folder of broker 2 .* broker 1, .*/data, with --data"):
        open_cluster(wanted, randomness=Chance(), wall_ms=1)


def test_folders_lie_beside_one_that_is_named_by_a_dot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path / "data")
    wanted = Wanted(".", 3, "127.0.0.1:19092", {})
    open_cluster(wanted, randomness=Chance(), wall_ms=1).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "data-2", "data-3"]


def test_a_start_waits_for_nodes_whose_parent_was_killed(tmp_path: Path) -> None:
    opened(tmp_path).close()
    orphan = FolderLock(f"{tmp_path}/data-2")
    ends = threading.Timer(0.3, orphan.release)
    ends.start()
    opened(tmp_path).close()
    assert ends.finished.is_set(), "it has ended before"


def test_a_controller_whose_port_is_taken_gets_another_one(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.close()
    ports = [node.controller_port for node in first.plan.nodes]
    with socket.create_server(("localhost", ports[1])):
        again = opened(tmp_path)
        again.close()
        taken = [node.controller_port for node in again.plan.nodes]
        assert taken[1] != ports[1] and (taken[0], taken[2]) == (ports[0], ports[2])
        (listener,) = settings_of(again, 2).controllers
        assert listener.port == taken[1]
        assert read_plan(RealDisk(), f"{tmp_path}/data-3") == again.plan
        with (
            socket.create_server(("localhost", taken[2])),
            socket.create_server(("localhost", taken[0])),
        ):
            most = opened(tmp_path)
            most.close()
    assert most.plan == again.plan, "nobody could learn of the new ports"


def test_the_screen_says_what_new_topics_get(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("default.replication.factor=2\nmin.insync.replicas=1\n")
    cluster = opened(tmp_path, config_file=file)
    cluster.close()
    about = {n: {"address": f"localhost:{n}", "pid": n} for n in (1, 2, 3)}
    lines = welcome(cluster, about, "headrace")
    assert "new topics   2 replicas, acknowledged by 1 at least" in lines
    opened(tmp_path / "two", brokers=2).close()
    alone = opened(tmp_path / "two", brokers=1)
    alone.close()
    lines = welcome(alone, {1: about[1]}, "headrace")
    assert lines[0].endswith("a Kafka cluster of one")
    assert f"data         {tmp_path}/two/data" in lines
    assert "new topics   1 replica, acknowledged by 1 at least" in lines


def row_of_ports() -> int:
    """The first of three ports that are free, one after the other."""
    while True:
        first = free_ports(1)[0]
        if all(is_free(first + more) for more in (1, 2)):
            return first


def test_controllers_listen_where_they_are_told_and_stay_there(tmp_path: Path) -> None:
    first = row_of_ports()
    cluster = opened(tmp_path, brokers=4, controller_listen=f"127.0.0.1:{first}")
    cluster.close()
    addresses = [f"127.0.0.1:{first + number}" for number in range(3)]
    assert cluster.plan.controller_addresses() == addresses
    named = cluster.orders[4].overrides["controller.quorum.bootstrap.servers"]
    assert named == ",".join(addresses)
    (listener,) = settings_of(cluster, 2).controllers
    assert (listener.host, listener.port) == ("127.0.0.1", first + 1)
    assert listener.protocol == "SASL_PLAINTEXT", "only --insecure leaves the login out"
    with socket.create_server(("127.0.0.1", first)):
        again = opened(tmp_path, brokers=4, insecure=True)
        again.close()
    assert again.plan.controller_addresses() == addresses, "kept, even if one is taken"
    (listener,) = settings_of(again, 2).controllers
    assert listener.protocol == "PLAINTEXT", "nodes of other parents join"
    about = {n: {"address": f"localhost:{n}", "pid": n} for n in (1, 2, 3, 4)}
    assert f"             {', '.join(addresses)}" in welcome(again, about, "headrace")


def test_voters_that_know_each_other_do_not_all_move_at_once(tmp_path: Path) -> None:
    before = opened(tmp_path)
    before.close()
    with pytest.raises(CannotStart, match="know each other as localhost:"):
        opened(tmp_path, controller_listen="127.0.0.1:29093")
    assert read_plan(RealDisk(), f"{tmp_path}/data") == before.plan


def test_one_controller_moves_and_those_that_come_later_follow_it(tmp_path: Path) -> None:
    opened(tmp_path, brokers=2).close()
    first = row_of_ports()
    opened(tmp_path, brokers=None, controller_listen=f"127.0.0.1:{first}").close()
    grown = opened(tmp_path)
    grown.close()
    addresses = [f"127.0.0.1:{first + number}" for number in range(3)]
    assert grown.plan.controller_addresses() == addresses


def test_a_node_alone_opens_its_controller_with_one_restart(tmp_path: Path) -> None:
    identity = one(tmp_path)
    first = row_of_ports()
    told = f"127.0.0.1:{first}"
    cluster = opened(tmp_path, brokers=None, controller_listen=told, insecure=True)
    cluster.close()
    assert cluster.plan.cluster_id == identity.cluster_id
    assert cluster.plan.controller_addresses() == [told] and len(cluster.plan.nodes) == 1
    (listener,) = settings_of(cluster, 1).controllers
    assert (listener.port, listener.protocol) == (first, "PLAINTEXT")
    assert lives_in(str(tmp_path / "data")), "later starts need not name it"


@pytest.mark.parametrize("listen", ["0.0.0.0:9093", "localhost:0", "localhost:65534", "nowhere"])
def test_controllers_need_an_address_that_others_reach(tmp_path: Path, listen: str) -> None:
    with pytest.raises(CannotStart, match="--controller-listen"):
        opened(tmp_path, controller_listen=listen)


def test_free_ports_are_not_the_same() -> None:
    assert len(set(free_ports(5))) == 5
