"""This broker as a member of its cluster: its life, its ways to the controller and to brokers."""
