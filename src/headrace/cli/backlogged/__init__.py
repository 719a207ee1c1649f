"""What `headrace backlog` shows."""
