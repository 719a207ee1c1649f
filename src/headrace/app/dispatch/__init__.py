"""The records that a worker holds: which may run now, and the fate of each. Pure."""
