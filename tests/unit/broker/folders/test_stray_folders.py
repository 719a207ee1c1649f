"""Folders that no topic owns: said, kept for a long time, then removed with a word."""

import logging
import shutil

from tests.unit.broker.rig import Rig

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
    assert [r.levelno for r in caplog.records if r.name.startswith("headrace.broker")] == [
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
