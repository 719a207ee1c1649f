"""Folders that no topic owns: said, kept for a long time, then removed with a word."""

import logging
import shutil

import pytest

from headrace.node.broker.folders.identity import UnusableFolder
from tests.unit.node.broker.rig import Rig

DAY_MS = 86_400_000


def strays(folder):
    return sorted(path.name.split(".")[0] for path in folder.glob("*-stray"))


def with_lost_topics(tmp_path, partitions):
    """A folder whose metadata is of before a topic was made."""
    data = tmp_path / "data"
    Rig(data).stop()
    shutil.copytree(data / "__cluster_metadata-0", tmp_path / "old")
    rig = Rig(data)
    rig.create("orders", partitions)
    rig.produce("orders", "a")
    rig.stop()
    shutil.rmtree(data / "__cluster_metadata-0")
    shutil.copytree(tmp_path / "old", data / "__cluster_metadata-0")
    return data


def test_many_folders_that_lose_their_topics_at_once_are_said_loudly(tmp_path, caplog):
    data = with_lost_topics(tmp_path, 12)
    Rig(data)
    assert len(strays(data)) == 12
    (loud,) = [r.getMessage() for r in caplog.records if r.levelno == logging.CRITICAL]
    assert "12 of 12 folders" in loud and f"headrace segment check {data}" in loud


def test_a_single_one_is_a_warning(tmp_path, caplog):
    Rig(with_lost_topics(tmp_path, 1))
    assert [r.levelno for r in caplog.records if r.name.startswith("headrace.node.broker")] == [
        logging.WARNING
    ]


def test_a_stray_folder_goes_after_thirty_days_and_not_before(tmp_path, caplog):
    data = with_lost_topics(tmp_path, 1)
    rig = Rig(data)
    rig.advance(29 * DAY_MS)
    assert strays(data) == ["orders-0"]
    rig.stop()
    rig = Rig(data)  # a restart does not begin the wait anew
    rig.now.wall_ms += 29 * DAY_MS
    rig.advance(2 * DAY_MS)
    assert strays(data) == [] and "no topic has owned it for 31.0 days" in caplog.text


def test_a_damaged_mark_keeps_the_folder(tmp_path):
    data = with_lost_topics(tmp_path, 1)
    rig = Rig(data)
    (mark,) = data.glob("*-stray/stray-since")
    mark.write_bytes(b"0" + mark.read_bytes()[1:])
    rig.advance(400 * DAY_MS)
    assert strays(data) == ["orders-0"]


def test_minus_one_keeps_them_for_ever(tmp_path):
    data = with_lost_topics(tmp_path, 1)
    rig = Rig(data, headrace_stray_retention_ms=-1)
    rig.advance(400 * DAY_MS)
    assert strays(data) == ["orders-0"]


@pytest.mark.parametrize("left", [None, "quorum-state", "00000000000000000000.log"])
def test_a_node_alone_that_lost_its_metadata_begins_no_other_cluster(tmp_path, left):
    """Its topics would be strays, and removed after thirty days. An empty log is a lost one."""
    data = tmp_path / "data"
    rig = Rig(data)
    rig.create("orders", 1)
    rig.produce("orders", "a")
    rig.stop()
    metadata = data / "__cluster_metadata-0"
    shutil.move(metadata, tmp_path / "kept")
    if left is not None:
        metadata.mkdir()
        (metadata / left).write_bytes(b"")
    with pytest.raises(UnusableFolder, match="has lost its metadata.*orders-0"):
        Rig(data)
    shutil.rmtree(metadata, ignore_errors=True)
    shutil.move(tmp_path / "kept", metadata)
    assert strays(data) == [] and "orders" in Rig(data).node.broker.image.topics
