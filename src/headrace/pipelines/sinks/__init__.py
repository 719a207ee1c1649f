"""Where rows go: tables, topics, databases, each batch once."""
