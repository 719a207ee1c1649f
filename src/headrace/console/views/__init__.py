"""The contents of pages, as plain data: pure functions from the cluster's answers."""
