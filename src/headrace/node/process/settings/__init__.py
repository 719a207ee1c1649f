"""What a node is started with, by Kafka's names."""
