"""A number within the plan of a stream that each micro-batch takes as it is when it is planned.

Spark analyses the plan of a stream once, and optimizes and plans it again for each batch. Such a
number is an element of an array that is a literal of the plan: the optimizer replaces the element
by its value. So the number belongs to the plan of the batch, also on other machines, and a change
counts from the next batch on. Spark itself has only the time of the batch (`current_timestamp`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


class BatchValue:
    """A whole number of 64 bits; the driver sets it between batches."""

    def __init__(self, spark: SparkSession, value: int) -> None:
        context: Any = spark.sparkContext
        self._jvm: Any = context._jvm
        self._cell = context._gateway.new_array(self._jvm.java.lang.Long, 1)
        self.set(value)

    def set(self, value: int) -> None:
        self._cell[0] = value

    def column(self) -> Column:
        from pyspark.sql.classic.column import Column as ClassicColumn

        sql, jvm = self._jvm.org.apache.spark.sql, self._jvm
        values = sql.catalyst.util.GenericArrayData(self._cell)
        kind = sql.types.DataTypes.createArrayType(sql.types.DataTypes.LongType, False)
        literal = sql.catalyst.expressions.Literal(values, kind)
        column = ClassicColumn(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(literal))
        return column[0]
