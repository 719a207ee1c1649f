"""Obstacles to a delivery: topics that refuse it, and transactions that stay open."""
