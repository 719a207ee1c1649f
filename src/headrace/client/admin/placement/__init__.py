"""Where the replicas of partitions lie, on which disks, and how they move."""
