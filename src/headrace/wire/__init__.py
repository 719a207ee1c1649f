"""What other programs rely on: Kafka's bytes (`protocol`), our own agreements (`contract`)."""
