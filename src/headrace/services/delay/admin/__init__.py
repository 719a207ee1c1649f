"""The HTTP interface of a running instance."""
