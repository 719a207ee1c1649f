"""The version of a table by its log, and whether a table is the one of before."""

from __future__ import annotations

from pathlib import Path

from headrace.pipelines.sinks.table_memory import TableMemory
from headrace.pipelines.sinks.table_versions import last_version


def test_the_version_of_a_table_is_its_last_file(tmp_path: Path) -> None:
    assert last_version(str(tmp_path)) == -1
    assert last_version("s3a://bucket/table") == -1
    for format_, folder, name in (
        ("delta", "_delta_log", "{:020d}.json"),
        ("iceberg", "metadata", "v{}.metadata.json"),
    ):
        log = tmp_path / format_ / folder
        log.mkdir(parents=True)
        place = str(log.parent)
        assert last_version(place) == -1
        for number in range(3, 6):  # those of before have been removed
            (log / name.format(number)).touch()
        (log / "99.other").touch()
        assert last_version(place) == 5
        (log / name.format(6)).touch()
        assert last_version(place, 5) == 6
        assert last_version(place, 2) == 6  # known from before, and removed since
        for number in range(5, 7):
            (log / name.format(number)).unlink()
        assert last_version(place, 6) == 4  # an older copy


def test_a_table_is_another_one_by_its_id() -> None:
    assert TableMemory("a").is_another_than("b")
    assert not TableMemory("a").is_another_than("a")
    assert not TableMemory("").is_another_than("a")
    assert not TableMemory("a").is_another_than("")


def test_a_table_that_was_restored_with_its_batches_is_the_same() -> None:
    assert TableMemory("17@5").is_another_than("16@5")
    assert not TableMemory("17@9").is_another_than("16@5")
    assert not TableMemory("16@9").is_another_than("16@5")
