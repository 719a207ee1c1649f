"""Models and values drawn from seeds: the rows and the bad values are what plain Python says.

A few seeds run always, `make drawn-pipelines` runs more.
"""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession

from headrace.pipelines import Table, Topic, pipeline, testing
from tests.pipelines.drawn_models import drawn, read, values
from tests.pipelines.seeds import seeds

pytestmark = pytest.mark.timeout(7200)

VALUES = 80


@pytest.mark.parametrize("seed", seeds(12, 29, 48, 56))
def test_spark_reads_a_drawn_model_as_python_does(seed: int, spark: SparkSession) -> None:
    model = drawn(seed)
    sent = values(model, seed, VALUES)

    @pipeline(source=Topic("t", schema=model.model), sink=Table("t"))
    def everything(rows: DataFrame) -> DataFrame:
        return rows

    found = testing.run(everything, sent, spark)
    rows = {row["n"]: row for row in found.rows}
    reasons = dict(found.bad)
    for number, value in enumerate(sent):
        assert rows.get(number) == read(model, value), (seed, value, reasons.get(value))
