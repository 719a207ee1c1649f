"""The partitions that the group gives to an instance: what is asked of them, how they are left."""
