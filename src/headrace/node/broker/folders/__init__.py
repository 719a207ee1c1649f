"""The data folders of this broker: their identity, their replicas, and moves between them."""
