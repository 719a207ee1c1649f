"""Appends and fetches of records: acknowledgements, fetch sessions and the answers to fetches."""
