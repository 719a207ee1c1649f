"""Commands about one node and its machine: start, format, look into its files."""
