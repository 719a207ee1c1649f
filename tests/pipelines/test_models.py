"""A pydantic model is obeyed: Spark's reading and pydantic's agree, value by value."""

from __future__ import annotations

import json
import uuid
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from pyspark.sql import SparkSession

from headrace.pipelines import Topic
from headrace.pipelines.rows import record_rows
from tests.pipelines.test_bad_values import RECORDS, WRITTEN

pytestmark = pytest.mark.timeout(1200)


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Line(BaseModel):
    sku: str = Field(min_length=2)
    count: int | None = Field(default=None, gt=0)


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")

    id: int = Field(ge=0, lt=1000, multiple_of=2)
    qty: int = 1
    limit: int | None = 7
    tags: list[Annotated[str, Field(max_length=3)]] = []
    who: str = Field(default="nobody", validation_alias="customer-name")
    city: str | None = Field(default=None, validation_alias=AliasChoices("town", "place"))
    kind: Literal["a", "b"] = "a"
    color: Color = Color.RED
    zip: str | None = Field(default=None, pattern=r"^\d{4}(-\w+)?$")
    price: Decimal = Field(default=Decimal("1.50"), le=Decimal("99.99"))
    ratio: float = Field(default=-1, ge=0)
    token: uuid.UUID | None = None
    lines: list[Line] = Field(default_factory=list, max_length=2)
    labels: dict[str, Annotated[int, Field(ge=3)]] = {}


TOKEN = "6d1cc2c6-77aa-4b1c-9d00-0123456789ab"
MORE: list[dict[str, Any]] = [
    {},
    {"qty": 5, "limit": None},
    {"limit": 9, "tags": ["abc", "é"]},
    {"qty": None},
    {"tags": None},
    {"tags": ["abcd"]},
    {"tags": ["a", None]},
    {"customer-name": "Ada"},
    {"customer-name": None},
    {"who": "Ada"},
    {"town": "Bern"},
    {"place": "Bern"},
    {"kind": "b", "color": "blue"},
    {"kind": "c"},
    {"color": "green"},
    {"zip": "3000"},
    {"zip": "3000-äb"},
    {"zip": "3000\n"},
    {"zip": "٣٠٠٠"},
    {"zip": "300"},
    {"price": 99.99},
    {"price": 100},
    {"ratio": 0.5},
    {"ratio": -0.5},
    {"token": TOKEN},
    {"token": TOKEN.replace("-", "")},
    {"token": "no"},
    {"lines": [{"sku": "ab"}, {"sku": "cd", "count": 1}]},
    {"lines": [{"sku": "a"}]},
    {"lines": [{"sku": "ab", "count": 0}]},
    {"lines": [{"sku": "ab"}] * 3},
    {"lines": [None]},
    {"labels": {"x": 3}},
    {"labels": {"x": 2}},
    {"other": 1},
]
IDS = [{"id": number} for number in (-2, 1, 1000, 998)]


def as_pydantic(text: bytes) -> dict[str, Any] | None:
    try:
        return Order.model_validate_json(text).model_dump(mode="json")
    except ValidationError:
        return None


def test_spark_takes_what_pydantic_takes_and_as_pydantic_does(spark: SparkSession) -> None:
    values = [json.dumps({"id": 2} | more).encode() for more in [*MORE, *IDS]]
    rows = [(b"", value, "t", 0, n, WRITTEN, None) for n, value in enumerate(values)]
    source = Topic("t", schema=Order)
    found = record_rows.parsed(spark.createDataFrame(rows, RECORDS), source)
    seen = found.selectExpr(
        "offset",
        record_rows.WHY,
        f"to_json({record_rows.PARSED}, map('ignoreNullFields', 'false'))",
    ).collect()
    for n, why, made in sorted(tuple(row) for row in seen):
        wanted = as_pydantic(values[n])
        assert (why is None) == (wanted is not None), (values[n], why)
        if wanted is None:
            continue
        row = json.loads(made)
        row.pop(record_rows.CORRUPT, None)
        for one in (row, wanted):
            one["price"] = Decimal(str(one["price"])).normalize()
            one["token"] = one["token"] and uuid.UUID(one["token"])
        assert row == wanted, values[n]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"id": -2}, "the field id is -2, which breaks ge=0"),
        ({"qty": None}, "the field qty is null"),
        ({"tags": ["abcd"]}, "the field tags is abcd, which breaks max_length=3"),
        ({"kind": "c"}, "the field kind is c, which breaks one of 'a', 'b'"),
        ({"zip": "x"}, r"the field zip is x, which breaks pattern=^\d{4}(-\w+)?$"),
        ({"lines": [{"sku": "a"}]}, "the field lines.sku is a, which breaks min_length=2"),
        ({"lines": [{"sku": "ab"}] * 3}, "the field lines breaks max_length=2"),
        ({"other": 1}, 'the field other is extra (extra="forbid")'),
    ],
)
def test_the_reason_names_the_field_and_the_rule(
    spark: SparkSession, more: dict[str, Any], reason: str
) -> None:
    value = json.dumps({"id": 2} | more).encode()
    row = (b"", value, "t", 0, 0, WRITTEN, None)
    found = record_rows.parsed(spark.createDataFrame([row], RECORDS), Topic("t", schema=Order))
    assert found.select(record_rows.WHY).collect()[0][0] == reason
