"""The outbox: rows that an application commits with its own data become records, exactly once.

The pure part, in reading order: `rows` (one row as a record), `shard` (the relay of one shard as a
state machine), `shares` (which relay takes which shard), `settled_ids` (below which id all rows of
PostgreSQL are decided). The rest is what reads databases, writes to Kafka and waits around it.
"""
