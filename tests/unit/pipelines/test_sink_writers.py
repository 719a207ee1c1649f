"""The writer of each kind of sink without Spark: where it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.pipelines import Console, Jdbc, Table, Topic
from headrace.pipelines.declaration import Sink
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.sinks.console_lines import ConsoleWriter
from headrace.pipelines.sinks.jdbc import JdbcWriter
from headrace.pipelines.sinks.table_writer import TableWriter
from headrace.pipelines.sinks.to_topic import TopicWriter
from headrace.pipelines.sinks.writer import Writer

URL = "jdbc:postgresql://localhost/shop?password=x"
SINKS: tuple[Sink, ...] = (Table("a"), Jdbc("s.a", url=URL), Topic("out"), Console())
NO_SPARK: Any = None


def writer_of(sink: Sink, data: Path = Path("data")) -> Writer:
    return Writer(
        sink=sink,
        data=data,
        stream="headrace.p.1",
        bootstrap="localhost:9092",
        source_options={"kafka.security.protocol": "SSL", "startingOffsets": "earliest"},
        say=print,
        note=print,
        begin_anew="begin anew",
    )


def test_each_kind_of_sink_has_its_writer() -> None:
    kinds = [type(writer_of(sink).into) for sink in SINKS]
    assert kinds == [TableWriter, JdbcWriter, TopicWriter, ConsoleWriter]


def test_a_topic_is_written_by_the_security_of_the_source_and_by_its_own_options() -> None:
    into = writer_of(Topic("out", options={"kafka.acks": "all"})).into
    assert isinstance(into, TopicWriter)
    assert into.options == {
        "kafka.bootstrap.servers": "localhost:9092",
        "kafka.security.protocol": "SSL",
        "kafka.acks": "all",
    }


def test_checkpoints_and_people_name_sinks_alike() -> None:
    assert [(sink.kind, sink.shown) for sink in SINKS] == [
        ("delta append", "a"),
        ("jdbc append", "s.a at jdbc:postgresql://localhost/shop"),
        ("topic", "out"),
        ("console", "console"),
    ]
    assert Table("a", mode="upsert", key="id").kind == "delta upsert"
    assert Table("a", format="parquet").kind == "parquet append"
    assert Jdbc("a", url=URL, key="id").kind == "jdbc upsert"


def test_only_a_topic_is_made_and_parquet_does_not_tell_streams_apart() -> None:
    assert [sink.topics_to_make for sink in SINKS] == [(), (), ("out",), ()]
    assert [sink.knows_streams for sink in SINKS] == [True, True, False, False]
    assert not Table("a", format="parquet").knows_streams


def test_rows_go_elsewhere_under_another_name_but_for_a_console(tmp_path: Path) -> None:
    table, database, topic, console = (writer_of(sink, tmp_path) for sink in SINKS)
    assert table.location == str(tmp_path / "tables" / "a")
    assert table.elsewhere(None) is table
    assert table.elsewhere("b").location == str(tmp_path / "tables" / "b")
    assert database.elsewhere("s.b").location == "s.b"
    assert topic.elsewhere("other").sink == Topic("other")
    with pytest.raises(PipelineError, match="--into names a table"):
        console.elsewhere("b")


def test_history_is_not_added_to_a_table_that_is_there(tmp_path: Path) -> None:
    table = writer_of(Table("a"), tmp_path)
    table.refuse_repeats(NO_SPARK)
    Path(table.location).mkdir(parents=True)
    with pytest.raises(PipelineError, match="is there already"):
        table.refuse_repeats(NO_SPARK)
    writer_of(Table("a", mode="upsert", key="id"), tmp_path).refuse_repeats(NO_SPARK)
    for sink in (Topic("out"), Console(), Jdbc("a", url=URL, key="id")):
        writer_of(sink, tmp_path).refuse_repeats(NO_SPARK)
