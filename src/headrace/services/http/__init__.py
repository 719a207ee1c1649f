"""THE HTTP API: send and receive without a Kafka client, on any Kafka cluster."""
