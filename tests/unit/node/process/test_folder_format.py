"""`headrace format`: a data folder with its owner and its first quorum."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from headrace.node.consensus.snapshots import BOOTSTRAP_FILE, read_snapshot
from headrace.node.metadata.features import NEW_CLUSTER_LEVELS
from headrace.node.process.folders.folder_format import (
    format_folder,
    initial_controllers,
    levels_of,
)
from headrace.node.process.folders.real_disk import RealDisk
from headrace.node.process.settings.settings import CannotStart, Settings, load_settings

D1, D2 = "3J9mxgXtRDSPNWPwTdMuMw", "gWJvYcGjQnCOsNbT4hcNsg"
LISTENERS = "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093"
FIRST = "__cluster_metadata-0/00000000000000000000-0000000000.checkpoint"


def settings(folder: Path, **more: str) -> Settings:
    given = {name.replace("_", "."): text for name, text in more.items()}
    return load_settings(data=folder, overrides={"listeners": LISTENERS} | given)


def formatted(node: Settings, **how: object) -> object:
    usual: dict[str, object] = {
        "cluster_id": "a-cluster",
        "standalone": False,
        "controllers": None,
        "levels": levels_of({}),
    }
    return format_folder(
        RealDisk(),
        node,
        randomness=lambda count: hashlib.sha256(b"chance").digest()[:count],
        wall_ms=1,
        **(usual | how),  # type: ignore[arg-type]
    )


def voters_in(folder: Path) -> list[int]:
    read = read_snapshot((folder / FIRST).read_bytes(), FIRST)
    return [voter.id for voter in read.voters]


def test_a_quorum_of_two_knows_both_and_this_ones_directory(tmp_path: Path) -> None:
    both = initial_controllers(f"1@one:9093:{D1},2@[::1]:9094:{D2}", "CONTROLLER")
    formatted(settings(tmp_path), controllers=both)
    assert voters_in(tmp_path) == [1, 2]
    written = (tmp_path / "meta.properties").read_text()
    assert "cluster.id=a-cluster" in written and f"directory.id={D1}" in written


def test_a_controller_alone(tmp_path: Path) -> None:
    formatted(settings(tmp_path), standalone=True)
    assert voters_in(tmp_path) == [1]


def test_a_node_that_joins_does_not_say_who_votes(tmp_path: Path) -> None:
    formatted(settings(tmp_path))
    assert not (tmp_path / FIRST).exists()
    assert (tmp_path / "meta.properties").exists()


def test_levels_are_those_of_a_new_cluster_but_for_what_is_said(tmp_path: Path) -> None:
    levels = levels_of({"transaction.version": "0", "metadata.version": "25"})
    formatted(settings(tmp_path), levels=levels)
    records = read_snapshot((tmp_path / BOOTSTRAP_FILE).read_bytes(), BOOTSTRAP_FILE).records
    found = {record.name: record.feature_level for record in records}
    expected = dict(NEW_CLUSTER_LEVELS) | {"metadata.version": 25}
    del expected["transaction.version"]
    assert found == expected


def test_a_formatted_folder_is_not_touched(tmp_path: Path) -> None:
    formatted(settings(tmp_path), standalone=True)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}
    again = formatted(settings(tmp_path), standalone=True, cluster_id="other")
    assert again.cluster_id == "a-cluster" and not again.is_new  # type: ignore[attr-defined]
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("1@one:9093", "ID@HOST:PORT:DIRECTORY-ID"),
        (f"1@one:99999:{D1}", "ID@HOST:PORT:DIRECTORY-ID"),
        (f"1@one:9093:{D1},1@two:9093:{D2}", "name 1 twice"),
    ],
)
def test_controllers_that_make_no_sense(listed: str, said: str) -> None:
    with pytest.raises(CannotStart, match=said):
        initial_controllers(listed, "CONTROLLER")


def test_what_does_not_fit_the_settings_is_refused(tmp_path: Path) -> None:
    others = initial_controllers(f"2@two:9093:{D2}", "CONTROLLER")
    with pytest.raises(CannotStart, match="do not name node.id=1"):
        formatted(settings(tmp_path), controllers=others)
    static = settings(tmp_path, controller_quorum_voters="1@localhost:9093,2@two:9093")
    with pytest.raises(CannotStart, match="controller.quorum.voters says who votes"):
        formatted(static, standalone=True)
    broker = load_settings(
        data=tmp_path,
        overrides={
            "process.roles": "broker",
            "controller.quorum.bootstrap.servers": "localhost:9093",
        },
    )
    with pytest.raises(CannotStart, match="no controller"):
        formatted(broker, standalone=True)
    with pytest.raises(CannotStart, match="not a cluster id"):
        formatted(settings(tmp_path), cluster_id="a b", standalone=True)
    with pytest.raises(CannotStart, match="from 7 to 30, not 99"):
        levels_of({"metadata.version": "99"})
    with pytest.raises(CannotStart, match="no feature kraft.version"):
        levels_of({"kraft.version": "1"})
    assert not (tmp_path / "meta.properties").exists(), "nothing was formatted"
