"""Migrations of Django that make the outbox's tables and bring them up to date."""
