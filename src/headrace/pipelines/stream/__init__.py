"""A pipeline at work: its folder, its queries, what was there before it, a span of history."""
