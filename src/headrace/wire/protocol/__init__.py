"""The wire: messages, frames, record batches and their compression, as Kafka has them.

Bytes in, objects out, and back; no sockets, no files, no clock, and nothing of the rest of Headrace
but the types of `headrace.environment`. Start with `messages` (one generated module per API) and
`record_batch`.
"""
