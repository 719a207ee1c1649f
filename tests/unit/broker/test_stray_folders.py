"""Folders that no topic owns: said, kept for a long time, then removed with a word."""

import logging
import shutil

from tests.unit.broker.bench import Bench

DAY_MS = 86_400_000


def strays(folder):
    return sorted(path.name.split(".")[0] for path in folder.glob("*-stray"))


def with_lost_topics(tmp_path, partitions):
    """A folder whose metadata is of before a topic was made."""
    data = tmp_path / "data"
    Bench(data).stop()
    shutil.copytree(data / "__cluster_metadata-0", tmp_path / "old")
    bench = Bench(data)
    bench.create("orders", partitions)
    bench.produce("orders", "a")
    bench.stop()
    shutil.rmtree(data / "__cluster_metadata-0")
    shutil.copytree(tmp_path / "old", data / "__cluster_metadata-0")
    return data


def test_many_folders_that_lose_their_topics_at_once_are_said_loudly(tmp_path, caplog):
    data = with_lost_topics(tmp_path, 12)
    Bench(data)
    assert len(strays(data)) == 12
    (loud,) = [r.getMessage() for r in caplog.records if r.levelno == logging.CRITICAL]
    assert "12 of 12 folders" in loud and f"headrace segment check {data}" in loud


def test_a_single_one_is_a_warning(tmp_path, caplog):
    Bench(with_lost_topics(tmp_path, 1))
    assert [r.levelno for r in caplog.records if r.name.startswith("headrace.broker")] == [
        logging.WARNING
    ]


def test_a_stray_folder_goes_after_thirty_days_and_not_before(tmp_path, caplog):
    data = with_lost_topics(tmp_path, 1)
    bench = Bench(data)
    bench.advance(29 * DAY_MS)
    assert strays(data) == ["orders-0"]
    bench.stop()
    bench = Bench(data)  # a restart does not begin the wait anew
    bench.now.wall_ms += 29 * DAY_MS
    bench.advance(2 * DAY_MS)
    assert strays(data) == [] and "no topic has owned it for 31.0 days" in caplog.text


def test_a_damaged_mark_keeps_the_folder(tmp_path):
    data = with_lost_topics(tmp_path, 1)
    bench = Bench(data)
    (mark,) = data.glob("*-stray/stray-since")
    mark.write_bytes(b"0" + mark.read_bytes()[1:])
    bench.advance(400 * DAY_MS)
    assert strays(data) == ["orders-0"]


def test_minus_one_keeps_them_for_ever(tmp_path):
    data = with_lost_topics(tmp_path, 1)
    bench = Bench(data, headrace_stray_retention_ms=-1)
    bench.advance(400 * DAY_MS)
    assert strays(data) == ["orders-0"]
