"""Administering a cluster: its topics, groups, users, rights, transactions, and itself."""
