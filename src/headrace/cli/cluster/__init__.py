"""Commands about a cluster as a whole: its brokers, who may do what, and how much."""
