"""Services as real processes against real brokers: ours, and Apache Kafka."""
