"""Segments of a log: files of batches, the indexes beside them, and searches in both."""
