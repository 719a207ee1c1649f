"""What stands in the way of a delivery: topics that refuse it, transactions that nobody ends."""
