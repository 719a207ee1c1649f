"""Delayed messages as a client sees them: when, which topics, who serves them, a change of mind."""
