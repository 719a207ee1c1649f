"""Delayed messages as a client sees them: schedules, topics, instances, cancellation."""
