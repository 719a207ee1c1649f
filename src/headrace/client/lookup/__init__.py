"""Looks up records without a consumer group."""
