"""Share consumers that HTTP requests use: one for each user, group and set of topics."""
