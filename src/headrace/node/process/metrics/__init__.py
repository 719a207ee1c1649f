"""What Prometheus reads of a node, and the endpoint where it reads it."""
