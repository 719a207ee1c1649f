"""The replicas of this broker: their logs, whom they follow, how they are kept clean."""
