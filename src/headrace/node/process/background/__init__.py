"""Processes beside the loop: compaction, the scrub, the delay service."""
