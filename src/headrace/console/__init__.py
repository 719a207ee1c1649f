"""The web console: what flows through a cluster, and mending what is stuck, in a browser."""
