"""Connections that this node opens to the other nodes of its cluster."""
