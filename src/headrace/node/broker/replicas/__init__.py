"""The replicas of this broker: their logs, their leaders, and the upkeep of both."""
