"""Trace a message: which records of which topics belong to it, and what they show."""
