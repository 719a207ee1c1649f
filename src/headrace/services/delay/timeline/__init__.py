"""The core, without clock or cluster: what waits in a partition, and what is done when due."""
