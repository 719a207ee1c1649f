"""Sending records: producers, their transactions, and delivery results."""
