"""`headrace produce` and `headrace consume` on a real broker."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import confluent_kafka
import pytest

from headrace.testing import Broker
from headrace.wire.protocol.java_hash import partition_for_key
from tests.sockets.cli.conftest import CommandLine

pytestmark = pytest.mark.usefixtures("quick_producers")


def test_lines_in_lines_out(headrace: CommandLine) -> None:
    headrace("produce", "lines", stdin="one\ntwo\n\nfour\n")
    assert headrace("consume", "lines") == "one\ntwo\n\nfour\n"


def test_bytes_pass_unchanged(headrace: CommandLine) -> None:
    headrace("produce", "raw", stdin=b"\xff\x00\xfe\n")
    [record] = headrace.json_lines("consume", "raw")
    assert record["value_base64"] == "/wD+"


def test_keys_headers_and_json(headrace: CommandLine) -> None:
    headrace("produce", "keyed", "-K", ":", "-H", "trace=7", "-H", "who=me", stdin="k:v\nplain\n")
    keyed, plain = headrace.json_lines("consume", "keyed")
    assert (keyed["key"], keyed["value"], keyed["offset"]) == ("k", "v", 0)
    assert keyed["headers"] == [{"name": "trace", "value": "7"}, {"name": "who", "value": "me"}]
    assert (plain["key"], plain["value"]) == (None, "plain")
    assert "trace: 7" in headrace("consume", "keyed", "--pretty", "--headers")


def test_keys_go_where_javas_client_sends_them(headrace: CommandLine) -> None:
    headrace("topics", "create", "hashed", "--partitions", "7")
    keys = [f"key-{n}" for n in range(50)]
    headrace("produce", "hashed", "-K", "=", stdin="".join(f"{key}=x\n" for key in keys))
    went = {r["key"]: r["partition"] for r in headrace.json_lines("consume", "hashed")}
    assert went == {key: partition_for_key(key.encode(), 7) for key in keys}


def test_a_chosen_partition_and_one_that_is_not_there(headrace: CommandLine) -> None:
    headrace("topics", "create", "chosen", "--partitions", "3")
    headrace("produce", "chosen", "--partition", "2", stdin="a\nb\n")
    assert headrace("consume", "chosen", "--partition", "2") == "a\nb\n"
    assert headrace("consume", "chosen", "-p", "0", "-p", "1") == ""
    missing = "Topic chosen has no partition 3; it has 3, counted from 0."
    assert headrace.failure("produce", "chosen", "-p", "3", stdin="x\n") == missing
    assert headrace.failure("consume", "chosen", "-p", "3") == missing


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_comes_back(headrace: CommandLine, codec: str) -> None:
    text = "the same words again and again\n" * 50
    told = headrace.json("produce", f"packed-{codec}", "-z", codec, stdin=text)
    assert told["records"] == 50
    assert headrace("consume", f"packed-{codec}") == text


def test_where_reading_begins_and_ends(headrace: CommandLine) -> None:
    headrace("produce", "places", stdin="".join(f"{n}\n" for n in range(10)))
    assert headrace("consume", "places", "--from", "7") == "7\n8\n9\n"
    assert headrace("consume", "places", "--from", "999") == ""
    said = headrace.notes("consume", "places", "--from", "999")
    assert "places ends before offset 999 (at 10): nothing to read." in said
    assert headrace("consume", "places", "--from", "end") == ""
    assert headrace("consume", "places", "--count", "2") == "0\n1\n"
    assert headrace("consume", "places", "--from", "3", "--count", "1") == "3\n"
    assert headrace("consume", "places", "--from", "-1h", "--count", "1") == "0\n"
    tomorrow = datetime.fromtimestamp(datetime.now(UTC).timestamp() + 86_400, UTC).isoformat()
    assert headrace("consume", "places", "--from", tomorrow) == ""


def test_following_goes_on_until_the_count(headrace: CommandLine) -> None:
    headrace("produce", "followed", stdin="a\nb\n")
    assert headrace("consume", "followed", "--follow", "--count", "2") == "a\nb\n"


def test_a_file_is_written_whole(headrace: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "lines.txt"
    file.write_text("".join(f"line {n}\n" for n in range(5_000)) + "no newline at the end")
    told = headrace.json("produce", "filed", str(file))
    assert told["records"] == 5_001
    assert headrace("consume", "filed").splitlines()[-1] == "no newline at the end"


@pytest.mark.integration
def test_a_topic_that_is_not_there_is_said_with_what_to_do(headrace: CommandLine) -> None:
    assert headrace.failure("consume", "nowhere") == (
        "There is no topic nowhere. Create it with `headrace topics create nowhere`."
    )


def test_the_last_records_of_each_partition(headrace: CommandLine) -> None:
    headrace("topics", "create", "tails", "--partitions", "2")
    for partition in ("0", "1"):
        lines = "".join(f"{partition}-{n}\n" for n in range(10))
        headrace("produce", "tails", "-p", partition, stdin=lines)
    assert headrace("consume", "tails", "--from", "-2", "-p", "0") == "0-8\n0-9\n"
    assert sorted(headrace("consume", "tails", "--from", "-1").split()) == ["0-9", "1-9"]
    assert len(headrace("consume", "tails", "--from", "-99").split()) == 20
    assert headrace("consume", "tails", "--from", "-0") == ""
    headrace("topics", "create", "void")
    assert headrace("consume", "void", "--from", "-5") == ""


def test_the_last_records_are_counted_not_their_offsets(
    headrace: CommandLine, broker: Broker
) -> None:
    """The end of a transaction takes an offset, and so does what was aborted."""
    headrace("topics", "create", "marked", "--partitions", "1")
    settings = {"bootstrap.servers": broker.bootstrap, "transactional.id": "marks"}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(20)
    for number in range(8):
        producer.begin_transaction()
        producer.produce("marked", f"{number}")
        producer.flush(60)
        if number in (5, 6):
            producer.abort_transaction(20)
        else:
            producer.commit_transaction(20)
    assert headrace("consume", "marked", "--from", "-3") == "3\n4\n7\n"


def test_one_key_for_all_and_tombstones(headrace: CommandLine) -> None:
    headrace("produce", "graves", "--key", "tom", stdin="coffee\ntea\n")
    headrace("produce", "graves", "--tombstone", "--key", "tom")
    headrace("produce", "graves", "--tombstone", stdin="ann\nbob\n")
    shown = headrace("consume", "graves", "--format", "%k=%s/%S")
    assert shown == "tom=coffee/6\ntom=tea/3\ntom=/-1\nann=/-1\nbob=/-1\n"
    for words in (
        ["--key", "a", "-K", ":"],
        ["--tombstone", "-K", ":"],
        ["--tombstone", "--key", "a", "file"],
    ):
        assert headrace.exit_code("produce", "graves", *words) == 2
