"""The machine's disk, and the data folders on it: formatted, locked, closed to others."""
