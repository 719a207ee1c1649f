"""Headrace under clients and tools that nobody here wrote, and beside Apache Kafka itself."""
