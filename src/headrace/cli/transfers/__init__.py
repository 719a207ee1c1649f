"""What `headrace demo` runs: two banks in SQLite, with an outbox and without, under kill -9."""
