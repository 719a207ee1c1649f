"""Texts of plans, as Spark writes them: the same from run to run, and what a change is called."""

from __future__ import annotations

from headrace.pipelines import Table, Topic, pipeline
from headrace.pipelines.declaration import Pipeline
from headrace.pipelines.stream.plan_identity import (
    Operator,
    PlanIdentity,
    change,
    identity_of,
    normalized,
)


def a_pipeline(sink: Table | None = None) -> Pipeline:
    source = Topic("t", schema="id LONG, amount LONG")
    return pipeline(source=source, sink=sink or Table("out"), name="p")(lambda rows: rows)


def source(first: int) -> Operator:
    rows = [(first, "id", "bigint"), (first + 1, "amount", "bigint")]
    return Operator("Project", "", is_source=True, rows=rows)


def summed(first: int, aggregate: str = "sum", code: str = "") -> Operator:
    """`rows.groupBy("id").agg(sum("amount"))`, with a function of Python on the way."""
    loud = f"loud(amount#{first + 1}L)#{first + 2} AS amount#{first + 3}"
    below = Operator(
        "Project",
        f"~Project [id#{first}L, {loud}]",
        expressions=[f"id#{first}L", loud],
        code=[f"loud = {code}"] if code else [],
        children=[source(first)],
    )
    total = f"{aggregate}(amount#{first + 3}) AS total#{first + 4}L"
    return Operator(
        "Aggregate",
        f"~Aggregate [id#{first}L], [id#{first}L, {total}]",
        expressions=[f"id#{first}L", f"id#{first}L", total],
        children=[below],
    )


def identity(
    plan: Operator, of: Pipeline | None = None, spark: str = "4.0.1", code: str = "x"
) -> PlanIdentity:
    columns = ["id bigint", "total bigint"]
    return identity_of(of or a_pipeline(), plan, columns, spark=spark, python="3.11", code=code)


def test_numbers_of_expressions_do_not_count() -> None:
    first, second = identity(summed(10)), identity(summed(7_000))
    assert first == second and change(first, second) is None
    assert first.state[1:] == ["Aggregate", " rows.id:bigint", " sum(loud(rows.amount:bigint))"]
    assert first.steps == [
        "Aggregate [id#0], [id#0, sum(amount#1) AS total#2]",
        " Project [id#0, loud(amount#3)#4 AS amount#1]",
        "  Rows",
    ]
    assert PlanIdentity.read(first.as_dict()) == first
    assert PlanIdentity.read({"spark": "4.0.1"}) is None is PlanIdentity.read(None)


def test_what_differs_from_run_to_run_does_not_count() -> None:
    watermark = (
        "~EventTimeWatermark a64be59a-dde7-4206-a1e5-856b392ce618, time#3: timestamp, 1 hours"
    )
    assert normalized(watermark) == "EventTimeWatermark , time#3: timestamp, 1 hours"
    assert normalized("Project [rand(4316137862024600717) AS x#1]") == "Project [rand() AS x#1]"
    assert normalized("Project [rand(7) AS x#1]") == "Project [rand(7) AS x#1]"
    assert normalized("Filter k#4 IN (b,a)") == normalized("Filter k#4 IN (a, b)")
    numbers = [
        f"id#1L IN ({', '.join(f'cast({n} as bigint)' for n in order)})" for order in ("312", "123")
    ]
    assert normalized(f"Filter ({numbers[0]} AND x)") == normalized(f"Filter ({numbers[1]} AND x)")
    assert normalized("Filter a IN (") == "Filter a IN ("
    assert normalized("f$$Lambda$12/0x01@3fa8c1, 2") == "f, 2"
    steps = "lambdafunction((lambda y_{1}.step = lambda x_{0}), lambda x_{0}, lambda y_{1})"
    assert normalized(steps.format(1, 2)) == normalized(steps.format(7, 8))
    assert normalized(steps.format(1, 2)) != normalized(steps.replace("= ", "> ").format(1, 2))


def test_a_window_is_written_as_one() -> None:
    def text(size: int) -> str:
        time = "precisetimestampconversion(time#3-T3600000ms, TimestampType, LongType)"
        start = f"precisetimestampconversion((({time} - 0) % {size}), LongType, TimestampType)"
        return f"Project [named_struct(start, {start}, end, {start}) AS window#9, k#4]"

    day = normalized(text(86_400_000_000))
    assert day == "Project [window(time#3-T3600000ms, 0, 86400000000) AS window#9, k#4]"
    assert day != normalized(text(3_600_000_000))
    plain = "Project [named_struct(start, id#1, end, 2) AS s#3]"
    assert normalized(plain) == plain


def test_state_is_separated_from_the_rest() -> None:
    before = identity(summed(1))
    found = change(before, identity(summed(1, aggregate="max")))
    assert found is not None and found.of_state
    assert found.shown == "sum(loud(amount)) is now max(loud(amount))"

    filtered = Operator("Filter", "~Filter (total#5L > 3)", children=[summed(1)])
    found = change(before, identity(filtered))
    assert found is not None and not found.of_state
    assert found.shown == "Filter (total > 3) is new"

    keyed = [a_pipeline(Table("out", mode="upsert", key=key)) for key in ("id", "total")]
    found = change(*(identity(summed(1), one) for one in keyed))
    assert found is not None and found.of_state
    assert found.shown == "the key of out (id) is now the key of out (total)"


def test_the_code_of_a_function_counts_within_one_version_of_python() -> None:
    before, after = identity(summed(1, code="aa")), identity(summed(1, code="bb"))
    found = change(before, after)
    assert found is not None and not found.of_state
    assert found.shown == "the code of loud is another"
    after.python = "3.12"
    assert change(before, after) is None


def test_another_spark_writes_other_texts() -> None:
    """There the code of the pipeline's function decides."""
    before, after = identity(summed(1)), identity(summed(1), spark="4.1.3")
    after.steps[0] = "Aggregate in other words"
    assert change(before, after) is None
    after.code = "y"
    found = change(before, after)
    assert found is not None and found.of_state and "Spark from 4.0.1 to 4.1.3" in found.shown
    assert change(before, identity(summed(1), spark="4.0.2")) is None
    patched = identity(summed(1, aggregate="max"), spark="4.0.2")
    assert (found := change(before, patched)) is not None and found.of_state


def test_many_changes_are_not_all_named() -> None:
    before, after = identity(source(1)), identity(source(1))
    after.columns += [f"c{n} int" for n in range(9)]
    found = change(before, after)
    assert found is not None
    assert found.shown.startswith("column c0 int is new; ") and found.shown.endswith("and 5 more")
