"""What `headrace delay` shows: times, pending messages, statistics; and the options for a time."""
