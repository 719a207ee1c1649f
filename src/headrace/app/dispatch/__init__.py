"""The records that a worker holds, pure: which may run now, and what becomes of each."""
