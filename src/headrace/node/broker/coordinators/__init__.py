"""The groups and transactions that this broker coordinates, and how requests wait for them."""
