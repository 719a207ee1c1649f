"""A running pipeline: its folder, its queries, the backfill, a span of history."""
