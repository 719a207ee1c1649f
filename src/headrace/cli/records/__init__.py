"""Commands about records: topics, who writes and reads, what waits, and what is read again."""
