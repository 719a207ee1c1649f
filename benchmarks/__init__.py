"""Headrace against Apache Kafka: the same load, the same client, one broker alive at a time.

Each module that has a `BENCHMARK` answers one question and holds its rows and goals. Brokers start
alternately on fresh folders and free ports of the loopback; broker processor time and memory are
read from /proc, so the client's own cost is never counted in. Linux only.

Run with `python -m benchmarks`; `docs/benchmarks.md` explains the method and keeps results.
"""
