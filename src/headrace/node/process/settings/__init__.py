"""The settings that a node is started with, under Kafka's names."""
