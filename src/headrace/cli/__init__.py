"""The `headrace` command, one module per command; `main` is the table of contents.

Client commands use `headrace.client` only, so they work on any Kafka cluster. Every command has
`--json`, and fails with one sentence on standard error and a code other than 0.
"""
