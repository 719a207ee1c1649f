"""Orders become the revenue of each day, and a table of all orders."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel
from pyspark.sql import DataFrame
from pyspark.sql.functions import col, count, sum, window

from headrace.pipelines import Table, Topic, pipeline


class Order(BaseModel):
    id: int
    time: datetime
    amount: int
    customer: str | None = None


ORDERS = Topic("orders", schema=Order, event_time="time", late="1 hour", per_batch=100_000)


@pipeline(source=ORDERS, sink=Table("revenue", mode="upsert", key="day"))
def revenue(orders: DataFrame) -> DataFrame:
    daily = orders.groupBy(window("time", "1 day"))
    totals = daily.agg(sum("amount").alias("amount"), count("*").alias("orders"))
    return totals.select(col("window.start").alias("day"), "amount", "orders")


@pipeline(source=ORDERS, sink=Table("all-orders"))
def all_orders(orders: DataFrame) -> DataFrame:
    return orders
