"""Trace a message: which records of which topics are about it, and what they tell."""
