"""What changes in a partition: who leads, who is in sync, which brokers have it."""
