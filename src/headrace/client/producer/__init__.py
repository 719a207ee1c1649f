"""Sending records: producers, their transactions, and what became of what was sent."""
