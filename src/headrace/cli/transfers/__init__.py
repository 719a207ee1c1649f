"""The demonstration of `headrace demo`: two banks in SQLite, with an outbox and without, under kill
-9."""
