"""Web tracking: what happens on a site, by the minute and by the day, from the topics of events.

Two sorts of tables. Tables keyed by their window (`page-views`, `daily-statistics`, `retention`,
`searches`, `clicks`) show a number while its window is still open and change it with each batch; an
event that comes later than LATE is left out and counted, and an offline run over the same table
corrects the numbers. Tables that are appended to (`top-pages`, `sessions`, `funnel`) get a row when
nothing can change it any more: LATE after its window, or after its session's gap.

Unique visitors are counted by HyperLogLog++, so state does not grow with visitors: RSD is the
standard deviation of its error. Spark is loaded when a pipeline runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.pipelines.days import by_day, day
from headrace.pipelines.declaration import Table, Topic, pipeline
from headrace.wire.contract.tracking import CLICK, PAGE_VIEW, SEARCH

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, GroupedData

LATE = "10 minutes"
GAP = "30 minutes"  # without a view for so long, a session is over
RSD = 0.02
TOP = 10
# A session goes down the funnel by seeing a page of each step after one of the step before.
STEPS = (
    ("product", "/products/%"),
    ("cart", "/cart"),
    ("checkout", "/checkout"),
    ("thanks", "/thanks"),
)

VIEWS = Topic(PAGE_VIEW.topic, schema=PAGE_VIEW.ddl, event_time="time", late=LATE)
SEARCHES = Topic(SEARCH.topic, schema=SEARCH.ddl, event_time="time", late=LATE)
CLICKS = Topic(CLICK.topic, schema=CLICK.ddl, event_time="time", late=LATE)


# ---- while the window is open


@pipeline(source=VIEWS, sink=Table("views-by-minute", mode="upsert", key="minute"))
def page_views(views: DataFrame) -> DataFrame:
    """Views and visitors of each minute."""
    from pyspark.sql import functions as F

    minutes = views.groupBy(F.window("time", "1 minute"))
    return counted(minutes, F.col("window.start").alias("minute"))


@pipeline(source=VIEWS, sink=Table("daily-statistics", mode="upsert", key="day"))
def daily_statistics(views: DataFrame) -> DataFrame:
    """The same of each day."""
    return counted(by_day(views, "time"), day().alias("day"))


def counted(views: GroupedData, name: Column) -> DataFrame:
    """Views, visitors, those who came for the first time that day, and pages, by minute or day."""
    from pyspark.sql import functions as F

    new = F.when(F.col("since") == F.to_date("time"), F.col("visitor"))
    totals = views.agg(
        F.count("*").alias("views"),
        F.approx_count_distinct("visitor", RSD).alias("visitors"),
        F.approx_count_distinct(new, RSD).alias("new_visitors"),
        F.approx_count_distinct("page", RSD).alias("pages"),
    )
    numbers = ("views", "visitors", "new_visitors", "pages")
    return totals.select(name, *numbers)


@pipeline(source=VIEWS, sink=Table("retention", mode="upsert", key=("since", "day")))
def retention(views: DataFrame) -> DataFrame:
    """Counts, for the visitors who came first on one day, how many came on each later day."""
    from pyspark.sql import functions as F

    known = views.where(F.col("since") <= F.to_date("time"))
    visitors = by_day(known, "time", "since").agg(
        F.approx_count_distinct("visitor", RSD).alias("visitors")
    )
    age = F.date_diff(day(), F.col("since"))
    return visitors.select("since", day().alias("day"), age.alias("days_later"), "visitors")


@pipeline(source=SEARCHES, sink=Table("searches-by-hour", mode="upsert", key=("hour", "query")))
def searches(rows: DataFrame) -> DataFrame:
    """The searches of each hour, how often, and how often without results."""
    from pyspark.sql import functions as F

    query = F.lower(F.trim("query")).alias("query")
    totals = rows.groupBy(F.window("time", "1 hour"), query).agg(
        F.count("*").alias("searches"),
        F.count_if(F.col("results") == 0).alias("in_vain"),
        F.approx_count_distinct("visitor", RSD).alias("visitors"),
    )
    hour = F.col("window.start").alias("hour")
    return totals.select(hour, "query", "searches", "in_vain", "visitors")


@pipeline(
    source=CLICKS, sink=Table("clicks-by-hour", mode="upsert", key=("hour", "page", "target"))
)
def clicks(rows: DataFrame) -> DataFrame:
    """The clicks on each page in each hour."""
    from pyspark.sql import functions as F

    totals = rows.groupBy(F.window("time", "1 hour"), "page", "target").agg(
        F.count("*").alias("clicks"), F.approx_count_distinct("visitor", RSD).alias("visitors")
    )
    hour = F.col("window.start").alias("hour")
    return totals.select(hour, "page", "target", "clicks", "visitors")


# ---- when nothing can change it any more


@pipeline(source=VIEWS, sink=Table("top-pages"))
def top_pages(views: DataFrame) -> DataFrame:
    """The pages with the most views of each minute; equal ones by name."""
    from pyspark.sql import functions as F

    counts = views.groupBy(F.window("time", "1 minute"), "page").agg(F.count("*").alias("views"))
    one = F.struct((-F.col("views")).alias("less"), F.col("page"))
    best = F.slice(F.sort_array(F.collect_list(one)), 1, TOP)
    minutes = counts.groupBy(F.window(F.window_time("window"), "1 minute")).agg(best.alias("best"))
    ranked = minutes.select(
        F.col("window.start").alias("minute"), F.posexplode("best").alias("place", "one")
    )
    rank, views_ = (F.col("place") + 1).alias("rank"), (-F.col("one.less")).alias("views")
    return ranked.select("minute", rank, F.col("one.page").alias("page"), views_)


@pipeline(source=VIEWS, sink=Table("sessions"))
def sessions(views: DataFrame) -> DataFrame:
    """Each visit, from its first view to its last, and how far down the funnel it came."""
    columns = ("visitor", "began", "ended", "views", "entry", "exit", "steps")
    return visits(views).select(*columns)


def visits(views: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    order = F.struct("time", "id")  # views of the same moment have an order too
    number = step_of(F.col("page"))
    found = views.groupBy("visitor", F.session_window("time", GAP)).agg(
        F.min("time").alias("began"),
        F.max("time").alias("ended"),
        F.count("*").alias("views"),
        F.min_by("page", order).alias("entry"),
        F.max_by("page", order).alias("exit"),
        F.collect_list(
            F.when(number.isNotNull(), F.struct("time", "id", number.alias("step")))
        ).alias("path"),
    )
    deep = F.aggregate(
        F.array_sort("path"),
        F.lit(0),
        lambda so_far, one: F.when(one["step"] == so_far + 1, so_far + 1).otherwise(so_far),
    )
    return found.withColumn("steps", deep)


def step_of(page: Column) -> Column:
    """The number of the step that a page belongs to, from 1, or null."""
    from pyspark.sql import functions as F

    cases = [F.when(page.like(like), F.lit(n)) for n, (_, like) in enumerate(STEPS, start=1)]
    return F.coalesce(*cases)


@pipeline(source=VIEWS, sink=Table("funnel"))
def funnel(views: DataFrame) -> DataFrame:
    """Counts, for the visits that ended in each hour, how many came to each step, in order."""
    from pyspark.sql import functions as F

    reached = visits(views).select(
        "session_window", F.explode(F.sequence(F.lit(0), F.col("steps"))).alias("step")
    )
    over = F.window(F.window_time("session_window"), "1 hour")
    counts = reached.groupBy(over, "step").agg(F.count("*").alias("visits"))
    names = F.array(F.lit("visit"), *(F.lit(name) for name, _ in STEPS))
    name = F.element_at(names, F.col("step") + 1).alias("name")
    return counts.select(F.col("window.start").alias("hour"), "step", name, "visits")


PIPELINES = (
    page_views,
    top_pages,
    sessions,
    funnel,
    retention,
    daily_statistics,
    searches,
    clicks,
)
