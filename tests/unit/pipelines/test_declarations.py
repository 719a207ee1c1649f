"""What a pipeline says of itself, and what is refused before Spark is started."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from headrace.pipelines import Console, Table, Topic, pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.pipeline_names import load
from headrace.pipelines.rows.schema import ddl_of
from headrace.pipelines.sinks.console_lines import lines
from headrace.pipelines.sinks.latest import ByColumns
from headrace.pipelines.sinks.table_writer import merge_statement


class Colour(Enum):
    RED = "red"


class Line(BaseModel):
    article: str
    count: int = 1


class Order(BaseModel):
    id: int
    time: datetime
    day: date | None
    total: Annotated[Decimal, Field(ge=0)]
    paid: bool = False
    colour: Colour | None = None
    kind: Literal["new", "old"] = "new"
    lines: list[Line] = []
    notes: dict[str, float | None] = {}
    sent_by: str = Field(alias="sentBy")


class Tree(BaseModel):
    children: list[Tree] = []


def test_a_model_becomes_columns() -> None:
    assert ddl_of(Order).split(", `") == [
        "`id` LONG NOT NULL",
        "time` TIMESTAMP NOT NULL",
        "day` DATE",
        "total` DECIMAL(38,18) NOT NULL",
        "paid` BOOLEAN",
        "colour` STRING",
        "kind` STRING",
        "lines` ARRAY<STRUCT<`article`: STRING NOT NULL",
        "count`: LONG>>",
        "notes` MAP<STRING, DOUBLE>",
        "sentBy` STRING NOT NULL",
    ]
    assert ddl_of("id LONG, name STRING") == "id LONG, name STRING"


class Anything(BaseModel):
    what: int | str


@pytest.mark.parametrize(
    ("schema", "why"),
    [(Tree, "holds itself"), (int, "not a schema"), (" ", "empty"), (Anything, "Anything.what")],
)
def test_what_has_no_columns_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(PipelineError, match=why):
        ddl_of(schema)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Topic("a b"),
        lambda: Topic("a", event_time="time"),
        lambda: Topic("a", event_time="time", late="1 hour"),
        lambda: Topic("a", starting="yesterday"),
        lambda: Topic("a", per_batch=0),
        lambda: Table("../a b c", mode="replace"),
        lambda: Table("a b"),
        lambda: Table("a", mode="upsert"),
        lambda: Table("a", key="id"),
        lambda: Table("a", mode="upsert", key="id", format="parquet"),
        lambda: Table("a", newest="time"),
        lambda: pipeline(source=Topic("a"), sink=Console(), name="../x")(lambda rows: rows),
    ],
)
def test_what_contradicts_itself_is_refused(make: Any) -> None:
    with pytest.raises(PipelineError):
        make()


def test_a_pipeline_is_its_function_with_names() -> None:
    @pipeline(source=Topic("orders"), sink=Table("all", partition_by=("day",)))
    def all_orders(rows: int) -> int:
        return rows + 1

    assert all_orders(1) == 2
    assert all_orders.name == "all-orders"
    assert all_orders.dead_topic == "orders.pipeline.all-orders.dead"


def test_upsert_is_a_merge_by_key_that_keeps_the_newer_row() -> None:
    newer = ByColumns(("time", "_record_offset")).is_newer()
    said = merge_statement("/x/a`b", ["shop", "id"], ["shop", "id"], newer=newer, deletes=False)
    assert said == (
        "MERGE INTO delta.`/x/a``b` t USING headrace_batch s "
        "ON t.`shop` <=> s.`shop` AND t.`id` <=> s.`id` "
        "WHEN MATCHED AND struct(s.`time`, s.`_record_offset`) >= "
        "struct(t.`time`, t.`_record_offset`) "
        "THEN UPDATE SET t.`shop` = s.`shop`, t.`id` = s.`id` "
        "WHEN NOT MATCHED THEN INSERT (`shop`, `id`) VALUES (s.`shop`, s.`id`)"
    )
    deleting = merge_statement("/x", ["id"], ["id"], newer="n", deletes=True)
    assert "WHEN MATCHED AND n AND s._headrace_deleted THEN DELETE WHEN MATCHED AND n" in deleting
    assert "WHEN NOT MATCHED AND NOT s._headrace_deleted THEN INSERT" in deleting


def test_the_console_shows_the_first_rows() -> None:
    rows = [(1, "long text"), (22, None), (3, "x")]
    assert lines(["id", "name"], rows, most=2) == ["id  name", "1   long text", "22  None", "..."]
    assert lines(["id"], [], most=2) == []


def test_a_file_is_loaded_by_the_name_of_its_pipeline(tmp_path: Path) -> None:
    file = tmp_path / "some_pipelines.py"
    begin = "from headrace.pipelines import *\n"
    one = "@pipeline(source=Topic('t'), sink=Console())\ndef {0}(rows): return rows\n"
    file.write_text(begin + one.format("first_one"))
    assert load(str(file)).name == load(f"{file}:first_one").name == "first-one"
    file.write_text(begin + one.format("first_one") + one.format("second"))
    assert load(f"{file}:second").name == "second"
    with pytest.raises(PipelineError, match="it has: first-one, second"):
        load(f"{file}:third")
    file.write_text("import pyspark_that_is_not_there")
    with pytest.raises(PipelineError, match="needs pyspark_that_is_not_there"):
        load(str(file))
    with pytest.raises(PipelineError, match="no file"):
        load(str(tmp_path / "none.py"))


def test_a_limit_on_the_future_is_a_time() -> None:
    assert Topic("orders").ahead == "5 minutes"
    assert Topic("orders", ahead=None).ahead is None
    for wrong in ("soon", "-5 minutes", "1 month", "5", "1 day) OR (1=1"):
        with pytest.raises(PipelineError, match="is not a time such as"):
            Topic("orders", ahead=wrong)
