"""A log that is found again: after a kill, with damage, with leftovers of interrupted work."""
