"""Attempts at records: call the handler within its time limit, send its results."""
