"""Logs: lines as a table, how many by the minute, what fails, and alerts.

`logs` is a table by day and service with each line once: a line that was sent twice has the same
id and replaces itself. Lines with a `problem` are rows like the others. The numbers count ids, so a
line that was sent twice counts once; lines later than LATE are left out of them and counted, and an
offline run corrects the numbers. An alert comes ALERT_LATE after its minute, once (`episodes.py`).

Rules of your own: `my_alerts = alerts("my-alerts", [Rule("card", contains="card", at_least=3)])`
in a file, and `headrace pipeline run FILE.py:my_alerts`. Spark is loaded when a pipeline runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.pipelines.days import by_day, day
from headrace.pipelines.declaration import Pipeline, Table, Topic, pipeline
from headrace.pipelines.failure import PipelineError
from headrace.wire.contract.logs import ALERTS, DDL, ERROR, FATAL, LEVELS, LONGEST_SERVICE, TOPIC

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LATE = "10 minutes"
ALERT_LATE = "1 minute"
NO_LEVEL = "NONE"
UNNAMED = "unnamed"

# The varying parts of a program's lines, and their placeholders, in this order.
VARIABLE = (
    (r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", "<id>"),
    (r"0x[0-9a-fA-F]+", "<hex>"),
    (r"[0-9]{1,3}(\.[0-9]{1,3}){3}", "<ip>"),
    (r'"[^"]*"', "<text>"),
    (r"'[^']*'", "<text>"),
    (r"[0-9a-fA-F]{16,}", "<hex>"),
    (r"[0-9]+(\.[0-9]+)?", "<n>"),
)
LONGEST_TEMPLATE = 300
LONGEST_SAMPLE = 2000

LINES = Topic(TOPIC, schema=DDL)
IN_TIME = Topic(TOPIC, schema=DDL, event_time="time", late=LATE)


@pipeline(
    source=LINES,
    sink=Table(
        "logs",
        mode="upsert",
        key=("day", "service", "id"),
        newest="time",
        partition_by=("day", "service"),
    ),
)
def logs(lines: DataFrame) -> DataFrame:
    """Each line once."""
    from pyspark.sql import functions as F

    return with_folder_names(lines).withColumn("day", F.to_date("time"))


def with_folder_names(lines: DataFrame) -> DataFrame:
    """Adds the folder of each line: services become folders of the table. A service without a name,
    or with one that no file system takes, would stop the stream. It gets another name, and the
    fields of its lines keep the original one."""
    from pyspark.sql import functions as F

    said, fields = F.col("service"), F.col("fields")
    plain = F.substring(F.translate(said, "\0", ""), 1, LONGEST_SERVICE)
    service = F.when(plain == "", F.lit(UNNAMED)).otherwise(plain)
    kept = F.map_concat(
        F.map_filter(
            F.coalesce(fields, F.create_map().cast("map<string,string>")),
            lambda name, _: name != "service",
        ),
        F.create_map(F.lit("service"), said),
    )
    return lines.withColumns(
        {"service": service, "fields": F.when(service == said, fields).otherwise(kept)}
    )


@pipeline(
    source=IN_TIME, sink=Table("log-rates", mode="upsert", key=("minute", "service", "level"))
)
def log_rates(lines: DataFrame) -> DataFrame:
    """How many lines each service wrote in each minute, by level."""
    from pyspark.sql import functions as F

    level = F.coalesce("level", F.lit(NO_LEVEL)).alias("level")
    counts = lines.groupBy(F.window("time", "1 minute"), "service", level).agg(
        distinct_ids().alias("lines")
    )
    return counts.select(F.col("window.start").alias("minute"), "service", "level", "lines")


@pipeline(
    source=IN_TIME, sink=Table("log-errors", mode="upsert", key=("day", "service", "template"))
)
def log_errors(lines: DataFrame) -> DataFrame:
    """The errors of each day, by the template of the message: how often, since when, a sample."""
    from pyspark.sql import functions as F

    failed = lines.where(F.col("level").isin(ERROR, FATAL))
    named = failed.withColumn("template", template(F.col("message")))
    order = F.struct("time", "id")
    found = by_day(named, "time", "service", "template").agg(
        distinct_ids().alias("lines"),
        F.min("time").alias("first_seen"),
        F.max("time").alias("last_seen"),
        F.substring(F.min_by("message", order), 1, LONGEST_SAMPLE).alias("sample"),
    )
    names = ("service", "template", "lines", "first_seen", "last_seen", "sample")
    return found.select(day().alias("day"), *names)


def distinct_ids() -> Column:
    """How many lines, each counted once: state holds eight bytes for each, for as long as a row may
    come late."""
    from pyspark.sql import functions as F

    return F.size(F.collect_set(F.xxhash64("id"))).cast("long")


def template(message: Column) -> Column:
    """The first line of a message, and the last one of a stack trace, without what varies."""
    from pyspark.sql import functions as F

    first, last = F.substring_index(message, "\n", 1), F.substring_index(message, "\n", -1)
    text = F.when(first == message, first).otherwise(F.concat(first, F.lit(" ... "), last))
    for pattern, instead in VARIABLE:
        text = F.regexp_replace(text, pattern, instead)
    return F.substring(text, 1, LONGEST_TEMPLATE)


# ---- alerts


@dataclass(slots=True, frozen=True, kw_only=True)
class Rule:
    """Bad is a minute in which a service wrote `at_least` lines that are of `level` or worse and
    whose message holds `contains`, a regular expression of Java."""

    name: str
    at_least: int = 1
    level: str | None = None
    contains: str | None = None
    service: str | None = None

    def __post_init__(self) -> None:
        if self.level is not None and self.level not in LEVELS:
            raise PipelineError(f"Rule {self.name}: level= is one of {', '.join(LEVELS)}.")
        if self.at_least < 1:
            raise PipelineError(f"Rule {self.name}: at_least= is 1 or more.")

    def holds(self) -> Column:
        from pyspark.sql import functions as F

        found = F.lit(True)
        if self.level is not None:
            worse = LEVELS[LEVELS.index(self.level) :]
            found &= F.coalesce(F.col("level").isin(*worse), F.lit(False))
        if self.contains is not None:
            found &= F.col("message").rlike(self.contains)
        if self.service is not None:
            found &= F.col("service") == self.service
        return found


RULES = (Rule(name="many-errors", level=ERROR, at_least=10), Rule(name="fatal", level=FATAL))


def alerts(
    name: str,
    rules: Sequence[Rule],
    *,
    lasts: int = 1,
    topic: str = ALERTS,
    late: str = ALERT_LATE,
    lines: str = TOPIC,
) -> Pipeline:
    """A pipeline that raises and clears alerts by these rules; `lasts` bad minutes raise one."""
    if not rules or len({one.name for one in rules}) != len(rules):
        raise PipelineError(f"{name}: give one rule or more, each with its own name.")

    def found(rows: DataFrame) -> DataFrame:
        return alerted(rows, rules, lasts)

    source = Topic(lines, schema=DDL, event_time="time", late=late)
    return pipeline(source=source, sink=Topic(topic, key="service", final=True), name=name)(found)


def alerted(lines: DataFrame, rules: Sequence[Rule], lasts: int) -> DataFrame:
    from pyspark.sql import functions as F

    from headrace.pipelines.shipped.episodes import runs

    of_line = F.array(
        *(
            F.when(
                one.holds(),
                F.struct(F.lit(one.name).alias("name"), F.lit(one.at_least).alias("at_least")),
            )
            for one in rules
        )
    )
    held = lines.withColumn("rule", F.explode(F.array_compact(of_line)))
    counts = held.groupBy(
        F.window("time", "1 minute"),
        "service",
        F.col("rule.name").alias("rule"),
        F.col("rule.at_least").alias("at_least"),
    ).agg(distinct_ids().alias("lines"))
    bad = counts.where("lines >= at_least")
    told = runs(bad, ["service", "rule"], "lines", lasts)
    id = F.concat_ws("/", "rule", "service", "state", F.unix_millis("time").cast("string"))
    number = F.col("value").cast("long").alias("lines")
    return told.select(id.alias("id"), "rule", "service", "state", "time", number)


log_alerts = alerts("log-alerts", RULES)

PIPELINES = (logs, log_rates, log_errors, log_alerts)
