"""Migrations of Django that create the outbox's tables and update older ones."""
