"""What other programs rely on: Kafka's bytes (`protocol`) and Headrace's own contracts
(`contract`)."""
