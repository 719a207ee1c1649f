"""NaN in a Delta table: the statistics that Spark writes include it, those of deltalake do not.

To Spark NaN is the greatest number, and it answers from the statistics of files where it can:
behind a file that deltalake wrote, `max(x)` is the greatest of the other numbers, and `x > 5` does
not find the row. So only Spark writes and rewrites files with NaN.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow
    from deltalake import DeltaTable


def is_among(rows: pyarrow.Table) -> bool:
    """Returns whether a NaN is among the values. Looks at columns of plain types."""
    return any(_has_one(column) for column in rows.columns)


def is_told_of(table: DeltaTable) -> bool:
    """Returns whether the statistics of a file in the loaded version include a NaN."""
    import pyarrow

    files = pyarrow.table(table.get_add_actions(flatten=True))
    greatest = [name for name in files.column_names if name.startswith("max.")]
    return any(_has_one(files[name]) for name in greatest)


def _has_one(column: pyarrow.ChunkedArray) -> bool:
    import pyarrow
    import pyarrow.compute

    if not pyarrow.types.is_floating(column.type):
        return False
    return bool(pyarrow.compute.any(pyarrow.compute.is_nan(column)).as_py())
