"""Changes of partitions: leaders, in-sync replicas, and the brokers that have replicas."""
