"""Kafka's files of a data folder, read without a broker: what they hold, damage, and its repair."""
