from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.pipelines.declaration import Table
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks import partition_texts


@pytest.mark.parametrize(
    ("file", "parts"),
    [("a.parquet", ()), ("day=1/a.parquet", ("day",)), ("a%3Db=1/c=2/a.parquet", ("a=b", "c"))],
)
def test_a_folder_of_files_shows_by_what_it_is_partitioned(
    tmp_path: Path, file: str, parts: tuple[str, ...]
) -> None:
    assert partition_texts.of_folder(str(tmp_path)) is None
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    assert partition_texts.of_folder(str(tmp_path)) == parts


def test_other_partitions_of_a_parquet_table_are_refused(tmp_path: Path) -> None:
    place, anew = str(tmp_path), "begin anew."
    by_day = Table("t", format="parquet", partition_by=("day",))
    partition_texts.refuse_others(place, by_day, anew)
    (tmp_path / "day=1").mkdir()
    (tmp_path / "day=1" / "a.parquet").touch()
    partition_texts.refuse_others(place, by_day, anew)
    partition_texts.refuse_others(place, replace(by_day, partition_by=("Day",)), anew)
    for other, said in ((("hour",), "hour"), ((), "no column")):
        table = Table("t", format="parquet", partition_by=other)
        with pytest.raises(PipelineError, match=f"by day, not by {said}, .*partition_by= back; or"):
            partition_texts.refuse_others(place, table, anew)
