"""THE HTTP DOOR: send and receive without a Kafka client, on any Kafka cluster."""
