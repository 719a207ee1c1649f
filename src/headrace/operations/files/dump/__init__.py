"""The views of `headrace segment dump`: Kafka's files as rows, read with the broker's own code."""
