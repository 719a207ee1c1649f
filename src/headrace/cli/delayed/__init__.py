"""The views of `headrace delay`: times, pending messages, statistics; and the options for a
time."""
