"""Delayed messages as a client sees them: schedules, topics, the service's instances,
cancellation."""
