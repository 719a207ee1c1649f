"""`headrace start --brokers 3` with damaged folders: the healthy nodes serve, damage is said."""

from __future__ import annotations

from pathlib import Path

from confluent_kafka import Producer

from tests.cluster.started import refusal_of, started


def damage_metadata(folder: Path) -> None:
    """A flipped bit in the first batch, which had been flushed and which no snapshot covers."""
    log = folder / "__cluster_metadata-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[70] ^= 1
    log.write_bytes(content)


def test_two_of_three_serve_while_one_folder_is_damaged(tmp_path: Path) -> None:
    data, third = tmp_path / "data", tmp_path / "data-3"
    with started(data, "--brokers", "3") as running:
        running.wait_until_ready()
        running.stop()
    whole = (data / "meta.properties").read_bytes()
    (data / "meta.properties").write_bytes(b"version=1\nnode.id=one\n")
    with started(data) as running:
        running.wait_until_ready()
        assert (list(running.pids), running.ready["not_started"]) == ([2, 3], [1])
        running.until("broker 1 | IS NOT STARTED, its data folder is damaged")
        running.stop()
    damage_metadata(third)
    assert "is damaged" in refusal_of(data), "one of three controllers is not enough"
    (data / "meta.properties").write_bytes(whole)
    with started(data) as running:
        running.wait_until_ready()
        assert (list(running.pids), running.ready["not_started"]) == ([1, 2], [3])
        running.until("broker 3 | IS NOT STARTED, its data folder is damaged")
        failures: list[object] = []
        producer = Producer({"bootstrap.servers": running.bootstrap, "acks": "all"})
        producer.produce("orders", b"one", on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(60) == 0 and failures == [None]
        running.stop()
