"""Kafka's files of a data folder, read without a broker: their contents, damage, and its repair."""
