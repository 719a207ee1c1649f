"""What surrounds Spark: spans of time, reports of batches, folders, Java and jars."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest

from headrace.operations.checkup import spark as checkup
from headrace.operations.checkup.finding import FindingState
from headrace.pipelines import Jdbc, Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark import jars, session
from headrace.pipelines.spark.jars import check
from headrace.pipelines.spark.java import major_version
from headrace.pipelines.spark.progress import Reports, read
from headrace.pipelines.stream.folder import (
    Folder,
    TableInUse,
    known,
    table_held,
    table_location,
)
from headrace.pipelines.stream.span import parse


def test_a_span_is_told_to_spark_by_time() -> None:
    assert parse("..").options() == {"startingOffsets": "earliest", "endingOffsets": "latest"}
    span = parse("2026-01-01..")
    assert span.options()["startingTimestamp"] == "1767225600000"
    both = parse("2026-01-01T01:00:00+01:00..2026-01-02").options()
    assert (both["startingTimestamp"], both["endingTimestamp"]) == (
        "1767225600000",
        "1767312000000",
    )


@pytest.mark.parametrize("text", ["", "2026", "a..b", "2026-02-01..2026-01-01", "1960-01-01.."])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(PipelineError):
        parse(text)


class Report:
    """Of Spark, as py4j shows it; counts how often it was brought here whole."""

    def __init__(self, batch: int, at: str) -> None:
        self.batch, self.at, self.brought = batch, at, 0

    def batchId(self) -> int:
        return self.batch

    def timestamp(self) -> str:
        return self.at

    def json(self) -> str:
        self.brought += 1
        return json.dumps({"batchId": self.batch, "timestamp": self.at})


class Query:
    """`_jsq` is PySpark's name for the query in Java."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        self._jsq = self

    def recentProgress(self) -> list[Report]:
        return list(self.reports[-3:])


def test_each_report_of_spark_is_brought_once() -> None:
    query, reports = Query(), Reports()
    assert reports.new(query) == []
    query.reports += [Report(0, "a"), Report(1, "b")]
    assert [one["batchId"] for one in reports.new(query)] == [0, 1]
    assert reports.new(query) == []
    # Idle: the next batch is reported without rows, later again with them.
    query.reports += [Report(2, "c"), Report(2, "d"), Report(2, "e")]
    assert [one["timestamp"] for one in reports.new(query)] == ["c", "d", "e"]
    assert reports.new(query) == []
    assert {one.brought for one in query.reports} == {1}


def test_a_batch_in_one_line() -> None:
    report = {
        "batchId": 7,
        "timestamp": "2026-01-01T00:00:00Z",
        "numInputRows": 12000,
        "processedRowsPerSecond": 4000.4,
        "durationMs": {"triggerExecution": 3000},
        "sources": [{"endOffset": {"t": {"0": 5, "1": 9}}, "latestOffset": '{"t":{"0":8,"1":9}}'}],
        "stateOperators": [
            {"numRowsTotal": 11, "numRowsDroppedByWatermark": 2, "memoryUsedBytes": 2_340_000}
        ],
    }
    assert read(report).line() == (
        "batch 7       12,000 rows     4,000 rows/s     3.0 s         3 behind"
        "  11 in state (2.3 MB)  2 too late"
    )
    assert read({"batchId": 0, "processedRowsPerSecond": "NaN"}).line() == (
        "batch 0            0 rows       0.0 rows/s     0.0 s         0 behind"
    )


def a_pipeline(topic: str = "t", form: str = "delta") -> Pipeline:
    made = pipeline(source=Topic(topic), sink=Table("out", format=form), name="p")
    return made(lambda rows: rows)


def test_a_folder_knows_what_its_checkpoint_belongs_to(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    first = folder.identity(a_pipeline())
    assert folder.identity(a_pipeline()) == first
    with pytest.raises(PipelineError, match="belongs to the source t, not other"):
        folder.identity(a_pipeline("other"))
    assert [one.name for one in known(tmp_path)] == ["p"]
    folder.reset(table=False)
    assert known(tmp_path) == []
    assert folder.identity(a_pipeline("other")) != first  # Delta must not know its batches


def test_a_reset_says_what_will_happen(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    with pytest.raises(PipelineError, match="No pipeline p has run"):
        folder.effects_of_reset(table=False)
    folder.identity(a_pipeline())
    stays = " ".join(folder.effects_of_reset(table=False))
    assert "checkpoint of p is removed" in stays and "the next run is refused" in stays
    adds = " ".join(folder.effects_of_reset(table=False, keep_rows=True))
    assert "adds to them" in adds and "there twice" in adds
    Folder(tmp_path, "q").identity(replace(a_pipeline(), name="q"))
    goes = " ".join(folder.effects_of_reset(table=True))
    place = table_location(tmp_path, "out")
    assert f"{place} is removed with all its rows" in goes and "q wrote to it too" in goes
    before = folder.described()
    folder.reset(table=False, keep_rows=True)
    after = folder.described()
    assert after.pop("id") != before.pop("id") and after == before  # a stream of its own
    assert folder.kept_with_identity("keeps_rows") and not folder.has_written()


def test_a_checkpoint_knows_its_pipeline(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    folder.identity(a_pipeline())
    shutil.copytree(folder.state, Folder(tmp_path, "copy").state)
    with pytest.raises(PipelineError, match="copy of the checkpoint of p"):
        Folder(tmp_path, "copy").identity(a_pipeline())
    folder.keep_with_identity(table="one")
    assert folder.kept_with_identity("table") == "one" and "table" not in folder.described()


def test_how_far_a_checkpoint_has_come(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    assert (folder.last_planned(), folder.last_committed(), folder.has_written()) == (-1, -1, False)
    for kind, names in {"offsets": ("8", "9", "10"), "commits": ("8", "9", ".9.crc")}.items():
        (folder.checkpoint / kind).mkdir(parents=True)
        for name in names:
            (folder.checkpoint / kind / name).touch()
    assert (folder.last_planned(), folder.last_committed(), folder.has_written()) == (10, 9, True)


def test_a_parquet_table_cannot_outlive_its_checkpoint(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    folder.identity(a_pipeline(form="parquet"))
    table = Path(table_location(tmp_path, "out"))
    table.mkdir(parents=True)
    with pytest.raises(PipelineError, match="--table"):
        folder.reset(table=False)
    folder.reset(table=True)
    assert not table.exists()


def test_a_table_goes_with_its_checkpoint_or_neither_does(tmp_path: Path) -> None:
    """Else the next run would add all its rows to those that stayed."""
    folder = Folder(tmp_path, "p")
    folder.identity(a_pipeline())
    place, elsewhere = Path(table_location(tmp_path, "out")), tmp_path / "large disk"
    elsewhere.mkdir()
    (elsewhere / "part").touch()
    place.parent.mkdir()
    place.symlink_to(elsewhere)
    with table_held(str(elsewhere), alone=False), pytest.raises(TableInUse):
        folder.reset(table=True)  # another pipeline writes it
    assert (elsewhere / "part").exists() and known(tmp_path)
    folder.reset(table=True)
    assert not list(place.iterdir()) and not known(tmp_path)
    folder.identity(a_pipeline())
    place.unlink()
    place.touch()
    with pytest.raises(PipelineError, match="cannot be removed: Not a directory"):
        folder.reset(table=True)
    assert known(tmp_path)


def test_a_table_behind_a_link_has_the_lock_of_the_table(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "t")
    link, place = str(tmp_path / "link"), str(tmp_path / "t")
    with table_held(link, alone=True), pytest.raises(TableInUse), table_held(place, alone=True):
        pass


def test_only_one_process_runs_a_pipeline(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    assert folder.runner() is None
    with folder.held():
        assert folder.runner() == os.getpid()
        with pytest.raises(PipelineError, match="runs already"), folder.held():
            pass
    assert folder.runner() is None
    with pytest.raises(PipelineError, match="does not run"):
        folder.stop()


def test_where_tables_lie(tmp_path: Path) -> None:
    assert table_location(tmp_path, "a") == str(tmp_path / "tables" / "a")
    assert table_location(tmp_path, "/lake/a") == "/lake/a"
    assert table_location(tmp_path, "s3a://lake/a") == "s3a://lake/a"


@pytest.mark.parametrize(
    ("said", "version"),
    [('openjdk version "17.0.15" 2025', 17), ('java version "1.8.0_2"', 8), ("what?", None)],
)
def test_javas_version(said: str, version: int | None) -> None:
    assert major_version(said) == version


def test_a_jar_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    jar = tmp_path / "a.jar"
    jar.write_bytes(b"good")
    wanted = hashlib.sha256(b"good").hexdigest()
    check(jar, wanted)
    jar.write_bytes(b"evil")
    with pytest.raises(PipelineError, match="not the file that was pinned"):
        check(jar, wanted)
    with pytest.raises(PipelineError, match="missing"):
        check(tmp_path / "b.jar", wanted)


def test_what_is_no_folder_is_not_removed(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    sink = Jdbc("shop.revenue", url="jdbc:postgresql://db/shop?password=secret", key="day")
    folder.identity(pipeline(source=Topic("t"), sink=sink, name="p")(lambda rows: rows))
    assert folder.described()["sink"] == "shop.revenue at jdbc:postgresql://db/shop"
    with pytest.raises(PipelineError, match="remove it yourself"):
        folder.reset(table=True)
    folder.reset(table=False)
    assert known(tmp_path) == []


def test_a_schema_stays_pinned_until_a_reset(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    folder.identity(a_pipeline())
    assert folder.schema() is None
    folder.pin_schema("id: BIGINT")
    assert Folder(tmp_path, "p").schema() == "id: BIGINT"
    folder.reset(table=False)
    assert folder.schema() is None


def test_each_line_of_spark_has_its_own_jars(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"pyspark": "4.0.5"}
    monkeypatch.setattr(metadata, "version", versions.__getitem__)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    old = jars.folder_below(tmp_path)
    assert "io.delta_delta-spark_2.13-4.0.1.jar" in jars.sums()
    versions["pyspark"] = "4.1.3"
    assert jars.folder_below(tmp_path) != old
    assert "io.delta_delta-spark_4.1_2.13-4.4.0.jar" in jars.sums()
    session.must_be_installed()
    versions["pyspark"] = "4.3.0"
    with pytest.raises(PipelineError, match="run on PySpark 4.0 or 4.1, and 4.3.0 is installed"):
        session.must_be_installed()


def test_the_doctor_says_what_pipelines_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"pyspark": "4.1.3"}
    monkeypatch.setattr(metadata, "version", versions.__getitem__)
    monkeypatch.setattr(checkup, "java_home", lambda cache: Path("/java"))
    assert "brings" in checkup.check_spark(tmp_path).found
    jars.folder_below(tmp_path).mkdir()
    finding = checkup.check_spark(tmp_path)
    assert finding.state == FindingState.WRONG and "missing" in str(finding.advice)

    def no_java(cache: Path) -> Path:
        raise PipelineError("Spark needs Java 17 or 21.")

    monkeypatch.setattr(checkup, "java_home", no_java)
    versions["pyspark"] = "4.3.0"
    everything = checkup.check_spark(tmp_path)
    assert everything.state == FindingState.WRONG and everything.found == "PySpark 4.3.0"
    for missing in ("need PySpark 4.0 or 4.1", "needs Java 17", ".jar is missing"):
        assert missing in str(everything.advice)

    def none(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", none)
    assert checkup.check_spark(tmp_path).state == FindingState.GOOD
