"""A running app: its threads, its membership in the group, and how it runs subscriptions."""
