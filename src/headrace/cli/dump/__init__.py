"""What `headrace segment dump` shows: Kafka's files as rows, read with the broker's own code."""
