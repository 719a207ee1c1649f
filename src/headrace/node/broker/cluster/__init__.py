"""This broker as a member of its cluster: its lifecycle, and its requests to other nodes."""
