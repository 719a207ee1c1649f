"""Spark itself: its Java, its jars, its session, and what it says of plans, progress and errors."""
