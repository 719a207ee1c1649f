"""What `headrace replay` shows: plans, progress, what a shadow has found."""
