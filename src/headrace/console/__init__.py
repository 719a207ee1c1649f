"""The web console: shows in a browser what flows through a cluster, and repairs what is stuck."""
