"""Backlog: how far a group is behind and why, and the ways to catch up."""
