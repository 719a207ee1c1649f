"""Compaction: the last record of each key stays."""
