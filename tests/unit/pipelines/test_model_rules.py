"""What a pydantic model demands is known, or refused when the pipeline is loaded."""

from __future__ import annotations

import datetime
import uuid
from typing import Annotated, Any

import pytest
from pydantic import AfterValidator, AliasPath, BaseModel, ConfigDict, Field, field_validator

from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.failure import PipelineError
from headrace.pipelines.rows.java_patterns import NotTheSame, as_java
from headrace.pipelines.rows.model_rules import Rule, rules_of


class Checked(BaseModel):
    qty: int

    @field_validator("qty")
    @classmethod
    def even(cls, value: int) -> int:
        return value // 2 * 2


class After(BaseModel):
    qty: Annotated[int, AfterValidator(abs)]


class Made(BaseModel):
    id: uuid.UUID = Field(default_factory=uuid.uuid4)


class Deep(BaseModel):
    city: str = Field(validation_alias=AliasPath("place", "city"))


class Inner(BaseModel):
    qty: int = 1


class Outer(BaseModel):
    lines: list[Inner]


class Stripped(BaseModel):
    model_config = ConfigDict(str_strip_whitespace=True)
    name: str


class Bounded(BaseModel):
    name: str = Field(pattern=r"(?i)abc")


class Naive(BaseModel):
    at: datetime.datetime = Field(ge=datetime.datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Checked, "Checked.qty: the validator even"),
        (After, "After.qty: AfterValidator"),
        (Made, "Made.id: a default_factory"),
        (Deep, "Deep.city: an AliasPath"),
        (Outer, "Inner.qty: a default other than None"),
        (Stripped, "Stripped: str_strip_whitespace"),
        (Bounded, "Bounded.name: the pattern"),
        (Naive, "Naive.at: ge="),
    ],
)
def test_what_spark_cannot_compute_is_refused_by_name(model: type, said: str) -> None:
    made = pipeline(source=Topic("t", schema=model), sink=Table("t"), name="t")
    with pytest.raises(PipelineError) as refused:
        made(lambda rows: rows)
    assert said in str(refused.value)


def test_rules_have_the_path_of_their_field() -> None:
    class Line(BaseModel):
        sku: str = Field(min_length=1)

    class Order(BaseModel):
        amount: int | None = Field(default=None, ge=0)
        lines: dict[str, list[Line]]

    found = rules_of(Order)
    assert Rule(("amount",), "ge", 0) in found.rules
    assert Rule(("lines", "{}", "[]", "sku"), "min_length", 1) in found.rules
    assert not found.defaults and found.only is None


@pytest.mark.parametrize(
    ("pattern", "java"),
    [
        (r"^\d+$", r"(?d)^\p{Nd}+\z"),
        (r"a{2,3}?|[^x\-y]", r"(?d)a{2,3}?|[^x\-y]"),
        (r"(?:a|b)\.\$", r"(?d)(?:a|b)\.\$"),
    ],
)
def test_a_pattern_says_in_java_what_it_says_in_rust(pattern: str, java: str) -> None:
    assert as_java(pattern) == java


@pytest.mark.parametrize(
    "pattern", ["(?i)a", r"\bword\b", "a++", "[a[b]]", "[a&&b]", r"\p{L}", "a**", r"\A"]
)
def test_a_pattern_that_may_differ_is_refused(pattern: str) -> None:
    with pytest.raises(NotTheSame):
        as_java(pattern)


def test_a_schema_that_is_not_a_model_has_no_rules() -> None:
    schemas: list[Any] = [None, "id LONG"]
    assert all(not rules_of(one).rules for one in schemas)
