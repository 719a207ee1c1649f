"""The one door to any Kafka cluster, ours or another: typed calls on confluent-kafka.

What stands around the broker (command line, services, console) reaches a cluster through this
package and nothing else, so it works on Apache Kafka as well. `connection` says where and how,
`topics` administers, `writing` and `reading` move records, `wire` speaks the calls that librdkafka
lacks with our own codecs. Refusals and failures are raised as `ClientError`, one sentence each.
"""
