"""The same requests, good and bad, to Headrace and to Apache Kafka; the answers are compared."""
