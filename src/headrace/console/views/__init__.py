"""What a page shows, as plain data: pure functions from what the cluster said."""
