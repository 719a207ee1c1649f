"""What Prometheus reads of a node, and where it reads it."""
