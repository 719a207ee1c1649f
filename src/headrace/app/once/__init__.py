"""`once=`: remembers which messages were handled, so that none has its effect twice."""
