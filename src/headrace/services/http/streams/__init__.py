"""Topics as streams of events: where a reader is, and the newest records in memory."""
