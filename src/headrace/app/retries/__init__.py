"""The fate of a failed record: retried, delayed, or parked as a dead letter."""
