"""Lag over time: samples taken in the background, kept in a small file, bounded."""
