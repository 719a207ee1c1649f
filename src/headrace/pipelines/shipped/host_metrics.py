"""Host metrics: roll-ups by the minute and the hour, and alerts.

The roll-ups change while their minute or hour is open; samples later than LATE are left out and
counted, and an offline run corrects the roll-ups. An alert comes ALERT_LATE after its minute, once
(`episodes.py`): a series whose average is above a threshold for some minutes, a host that is
silent, a series that is suddenly far from its last minutes. The samples themselves advance the
time: while no host at all sends samples, no silence is reported.

Rules of your own: `mine = alerts("my-alerts", above=[Above("cpu", "cpu_percent", 80, 3)])` in a
file, and `headrace pipeline run FILE.py:mine`. Spark is loaded when a pipeline runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from headrace.pipelines.declaration import Pipeline, Table, Topic, pipeline
from headrace.pipelines.failure import PipelineError
from headrace.wire.contract.metrics import ALERTS, DDL, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATE = "10 minutes"
ALERT_LATE = "1 minute"
SAMPLES = Topic(TOPIC, schema=DDL, event_time="time", late=LATE)
# At least so many of the minutes before a sudden change must be known.
LEAST_BEFORE = 3


def series_of(samples: DataFrame) -> DataFrame:
    """A row for each number of a sample."""
    from pyspark.sql import functions as F

    return samples.select("time", "host", F.explode("metrics").alias("metric", "value"))


@pipeline(
    source=SAMPLES, sink=Table("host-metrics", mode="upsert", key=("minute", "host", "metric"))
)
def host_metrics(samples: DataFrame) -> DataFrame:
    """Average, greatest and 95th percentile of each series, by the minute."""
    return rolled_up(samples, "1 minute", "minute")


@pipeline(
    source=SAMPLES,
    sink=Table("host-metrics-by-hour", mode="upsert", key=("hour", "host", "metric")),
)
def host_metrics_by_hour(samples: DataFrame) -> DataFrame:
    """The same by the hour."""
    return rolled_up(samples, "1 hour", "hour")


def rolled_up(samples: DataFrame, width: str, name: str) -> DataFrame:
    from pyspark.sql import functions as F

    totals = (
        series_of(samples)
        .groupBy(F.window("time", width), "host", "metric")
        .agg(
            F.count("*").alias("samples"),
            F.avg("value").alias("average"),
            F.max("value").alias("greatest"),
            F.percentile("value", 0.95).alias("p95"),
        )
    )
    numbers = ("host", "metric", "samples", "average", "greatest", "p95")
    return totals.select(F.col("window.start").alias(name), *numbers)


# ---- alerts


@dataclass(slots=True, frozen=True)
class Above:
    """The average of each minute is above `threshold`, `lasts` minutes in a row. `metric` is the
    name of a series without its labels."""

    name: str
    metric: str
    threshold: float
    lasts: int = 5


@dataclass(slots=True, frozen=True)
class Change:
    """The average of a minute differs from that of the `before` minutes by more than `times` that,
    and by more than `least`."""

    name: str
    metric: str
    least: float
    times: float = 1.0
    before: int = 5


ABOVE = (
    Above("cpu-high", "cpu_percent", 90.0),
    Above("memory-high", "memory_percent", 95.0),
    Above("disk-full", "disk_used_percent", 95.0),
)
CHANGES = (Change("load-changed", "load_1m", least=4.0, times=2.0),)
SILENT_MINUTES = 3


def alerts(
    name: str,
    *,
    above: Sequence[Above] = (),
    changes: Sequence[Change] = (),
    silent_minutes: int | None = None,
    topic: str = ALERTS,
    late: str = ALERT_LATE,
    samples: str = TOPIC,
) -> Pipeline:
    """A pipeline that raises and clears alerts by these rules."""
    names = [one.name for one in above] + [one.name for one in changes]
    if not names and silent_minutes is None:
        raise PipelineError(f"{name}: give one rule or more.")
    if len(set(names)) != len(names):
        raise PipelineError(f"{name}: each rule has its own name.")

    def found(rows: DataFrame) -> DataFrame:
        return alerted(rows, above, changes, silent_minutes)

    source = Topic(samples, schema=DDL, event_time="time", late=late)
    return pipeline(source=source, sink=Topic(topic, key="host", final=True), name=name)(found)


def alerted(
    samples: DataFrame,
    above: Sequence[Above],
    changes: Sequence[Change],
    silent_minutes: int | None,
) -> DataFrame:
    from pyspark.sql import functions as F

    parts = [
        _above(samples, lasts, [one for one in above if one.lasts == lasts])
        for lasts in sorted({one.lasts for one in above})
    ]
    parts += [_changed(samples, one) for one in changes]
    if silent_minutes is not None:
        parts.append(_silent(samples, silent_minutes))
    told = reduce(lambda a, b: a.unionByName(b), parts)
    moment = F.unix_millis("time").cast("string")
    id = F.concat_ws("/", "rule", "host", "metric", "state", moment)
    average = F.col("value").alias("average")
    return told.select(id.alias("id"), "rule", "host", "metric", "state", "time", average)


def _minutes(samples: DataFrame, matches: Column) -> DataFrame:
    """The average of each minute of the series that match."""
    from pyspark.sql import functions as F

    chosen = series_of(samples).where(matches)
    grouped = chosen.groupBy(F.window("time", "1 minute"), "host", "metric")
    return grouped.agg(F.avg("value").alias("value"))


def _base_name() -> Column:
    from pyspark.sql import functions as F

    return F.substring_index("metric", "{", 1)


def _above(samples: DataFrame, lasts: int, rules: Sequence[Above]) -> DataFrame:
    from pyspark.sql import functions as F

    from headrace.pipelines.shipped.episodes import runs

    minutes = _minutes(samples, _base_name().isin([one.metric for one in rules]))
    broken = F.array(
        *(
            F.when((_base_name() == one.metric) & (F.col("value") > one.threshold), one.name)
            for one in rules
        )
    )
    bad = minutes.withColumn("rule", F.explode(F.array_compact(broken)))
    return runs(bad, ["rule", "host", "metric"], "value", lasts)


def _changed(samples: DataFrame, rule: Change) -> DataFrame:
    from pyspark.sql import functions as F

    from headrace.pipelines.shipped.episodes import runs

    minutes = _minutes(samples, _base_name() == rule.metric)
    over = F.window(F.window_time("window"), f"{rule.before + 1} minutes", "1 minute")
    one = F.struct(F.col("window.start").alias("at"), F.col("value"))
    seen = minutes.select("window", "host", "metric", one.alias("one"))
    grouped = seen.groupBy(over, "host", "metric").agg(F.collect_list("one").alias("minutes"))
    last = F.col("window.end") - F.expr("INTERVAL 1 MINUTE")
    now = F.filter("minutes", lambda each: each["at"] == last)
    before = F.filter("minutes", lambda each: each["at"] < last)
    total = F.aggregate(before, F.lit(0.0), lambda sum, each: sum + each["value"])
    known = grouped.select(
        "window", "host", "metric", F.get(now, F.lit(0))["value"].alias("value"),
        F.try_divide(total, F.size(before)).alias("base"), F.size(before).alias("known"),
    )  # fmt: skip
    away = F.abs(F.col("value") - F.col("base"))
    bad = known.where(
        (F.col("known") >= min(LEAST_BEFORE, rule.before))
        & (away > rule.least)
        & (away > rule.times * F.abs("base"))
    ).withColumn("rule", F.lit(rule.name))
    return runs(bad, ["rule", "host", "metric"], "value", 1)


def _silent(samples: DataFrame, minutes: int) -> DataFrame:
    from pyspark.sql import functions as F

    from headrace.pipelines.shipped.episodes import silences

    heard = samples.groupBy(F.window("time", "1 minute"), "host").agg(F.count("*").alias("n"))
    told = silences(heard, ["host"], minutes)
    return told.withColumns({"rule": F.lit("silent"), "metric": F.lit("")})


metric_alerts = alerts("metric-alerts", above=ABOVE, changes=CHANGES, silent_minutes=SILENT_MINUTES)

PIPELINES = (host_metrics, host_metrics_by_hour, metric_alerts)
