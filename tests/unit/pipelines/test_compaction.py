"""Which partitions are compacted, who may, and what a table says about it."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.pipelines import Table
from headrace.pipelines.compaction import due
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.shipped.delta_without_spark import Partition, SmallFiles
from headrace.pipelines.stream import folder
from headrace.pipelines.stream.folder import TableInUse, TableLock, table_held


def small(**counts: int) -> dict[Partition, SmallFiles]:
    return {(name,): SmallFiles(count, count * 1000) for name, count in counts.items()}


def test_the_partitions_with_the_most_small_files_come_first() -> None:
    assert due(small(a=4, b=9, c=5), {}, least=5) == [("b",), ("c",)]
    assert due({(): SmallFiles(41)}, {}, least=41) == [()]


def test_files_that_could_not_be_joined_are_not_tried_again_until_there_are_more() -> None:
    assert due(small(a=45), {("a",): 45}, least=41) == []
    assert due(small(a=86), {("a",): 45}, least=41) == [("a",)]
    assert due(small(a=5), {("a",): 1}, least=5) == []


def free(place: str) -> bool:
    """Whether somebody else could have the table alone."""
    with Path(place).with_name(f".{Path(place).name}.lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def test_one_that_appends_has_the_table_alone_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "COMPACTED_WITHIN_S", 0.0)
    place = str(tmp_path / "t")
    with table_held(place, alone=False) as lock:
        with lock.alone_for_now() as alone:
            assert alone
            with pytest.raises(TableInUse), table_held(place, alone=False):
                pass
        with table_held(place, alone=False):  # shared again, and so nobody has it alone
            with lock.alone_for_now() as alone:
                assert not alone
            assert not free(place)
        assert not free(place)
    assert free(place)


def test_one_that_replaces_rows_has_it_alone_anyhow_and_of_an_address_nobody_knows(
    tmp_path: Path,
) -> None:
    with table_held(str(tmp_path / "t"), alone=True) as lock:
        with lock.alone_for_now() as alone:
            assert alone
        assert not free(str(tmp_path / "t"))
    with table_held("s3://bucket/t", alone=True) as lock, lock.alone_for_now() as alone:
        assert not alone and lock == TableLock(None, is_alone=False)


@pytest.mark.parametrize(
    ("declared", "said"),
    [
        (lambda: Table("t", compact=-1), "0 for never"),
        (lambda: Table("t", format="parquet", compact=5), "has no log"),
    ],
)
def test_what_cannot_be_compacted_is_refused_when_it_is_declared(
    declared: Callable[[], Table], said: str
) -> None:
    with pytest.raises(PipelineError, match=said):
        declared()
    assert Table("t", format="parquet", compact=0).compact == 0
