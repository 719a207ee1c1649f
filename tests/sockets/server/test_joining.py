"""What a node keeps when it joins a cluster, and the joins that are refused, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.node import join
from headrace.cli.node.join import Joining, joined_settings
from headrace.client.admin import cluster_members
from headrace.client.admin.cluster_members import ClusterMembers, ControllerAddress, free_node_id
from headrace.client.errors import ClientError
from headrace.node.process.folders.joined_node import FILE_NAME, has_joined
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.process.local_cluster.folders import identity_in
from headrace.node.process.settings.settings import CannotStart

CLUSTER, OTHER = "wBiSIjMTSiOZruDP6xw30A", "SdxWRlzXSq-kES9NQbTzdQ"


@pytest.fixture
def members(monkeypatch: pytest.MonkeyPatch) -> ClusterMembers:
    """The cluster answers with these; the test may change them."""
    there = ClusterMembers(CLUSTER, {1, 2}, [ControllerAddress(1, "CTRL", "one", 9095)], {2})
    monkeypatch.setattr(cluster_members, "read_members", lambda *_: there)
    monkeypatch.setattr(cluster_members, "require_controller", lambda *_: None)
    return there


def joining(folder: Path, at: str | None = "localhost:9092", **more: object) -> Joining:
    return Joining(str(folder / "data"), at, **more)  # type: ignore[arg-type]


def test_a_node_takes_the_next_number_and_keeps_what_it_has_learned(
    tmp_path: Path, members: ClusterMembers
) -> None:
    options = {"listen": "localhost:9292", "controller_listen": "localhost:9295"}
    settings = joined_settings(joining(tmp_path, **options))
    assert (settings.node_id, settings.cluster.is_controller) == (3, True)
    assert settings.values["default.replication.factor"] == 3
    identity = identity_in(RealDisk(), str(tmp_path / "data"))
    assert identity is not None and (identity.cluster_id, identity.node_id) == (CLUSTER, 3)
    members.brokers.add(3)  # it has registered meanwhile
    again = joined_settings(joining(tmp_path, at=None))
    assert again.given == settings.given and again.cluster.controller_listener == "CTRL"
    moved = joined_settings(joining(tmp_path, at=None, listen="localhost:9392"))
    assert [each.port for each in (*moved.listeners, *moved.controllers)] == [9392, 9295]
    assert joined_settings(joining(tmp_path)).node_id == 3, "its own number is not taken"


def test_a_broker_opens_no_listener_for_controllers(
    tmp_path: Path, members: ClusterMembers
) -> None:
    settings = joined_settings(joining(tmp_path, node_id=7))
    assert (settings.node_id, settings.cluster.is_controller) == (7, False)
    assert [(each.host, each.port) for each in settings.cluster.bootstrap] == [("one", 9095)]


def test_a_taken_number_and_a_folder_of_another_cluster_are_refused(
    tmp_path: Path, members: ClusterMembers
) -> None:
    with pytest.raises(CannotStart, match=r"has a node 2 already \(its nodes: 1, 2\)"):
        joined_settings(joining(tmp_path, node_id=2))
    assert not has_joined(str(tmp_path / "data")), "nothing is written"
    joined_settings(joining(tmp_path))
    with pytest.raises(CannotStart, match="is the folder of node 3: leave --node-id out"):
        joined_settings(joining(tmp_path, node_id=4))
    members.id = OTHER
    with pytest.raises(CannotStart, match=f"belongs to the cluster {CLUSTER}, and at"):
        joined_settings(joining(tmp_path))


def test_a_node_on_another_machine_needs_an_address_of_its_own(tmp_path: Path) -> None:
    for listen in (None, "localhost:9092"):
        with pytest.raises(CannotStart, match="--join on another machine needs --listen"):
            joined_settings(joining(tmp_path, at="one:9092", listen=listen))


def test_a_damaged_file_is_written_again_by_the_next_join(
    tmp_path: Path, members: ClusterMembers
) -> None:
    joined_settings(joining(tmp_path))
    (tmp_path / "data" / FILE_NAME).write_text("{")
    with pytest.raises(CannotStart, match="Start once more with --join"):
        joined_settings(joining(tmp_path, at=None))
    joined_settings(joining(tmp_path))
    assert joined_settings(joining(tmp_path, at=None)).node_id == 3


def test_a_cluster_whose_controllers_have_no_address_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_members, "read_members", lambda *_: ClusterMembers(CLUSTER, {1}))
    with pytest.raises(CannotStart, match="names no addresses .* --controller-listen"):
        joined_settings(joining(tmp_path))


class Closed:
    """Connections that a listener with logins closes, since the node has none."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Closed:
        return self

    def __exit__(self, *_: object) -> None: ...

    def version_of(self, messages: object) -> int:
        return 2

    def ask(self, messages: object, request: object) -> None:
        raise ClientError("The broker closed the connection.")


def test_a_node_without_a_login_learns_which_file_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_members, "Wire", Closed)
    with pytest.raises(CannotStart, match="say how with --client-config FILE"):
        joined_settings(joining(tmp_path))
    there = ClusterMembers(CLUSTER, {1}, [ControllerAddress(1, "CTRL", "one", 9095)])
    monkeypatch.setattr(cluster_members, "read_members", lambda *_: there)
    with pytest.raises(CannotStart, match="controller at one:9095 .* into a file for --config"):
        joined_settings(joining(tmp_path))
    assert not has_joined(str(tmp_path / "data")), "nothing is written"


def test_the_number_of_a_node_that_has_left_is_not_given_again() -> None:
    assert free_node_id({1, 5}) == 6
    assert free_node_id(()) == 1


def test_joining_is_one_node() -> None:
    with pytest.raises(Exception, match="--join starts one node"):
        join.require_alone(brokers=3, secure=False)
