"""The committed messages are what the generator writes, and it says so when they are not."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from headrace.wire.protocol import generator, messages
from headrace.wire.protocol.primitives import ZERO_ID


@functools.cache
def files() -> dict[str, str]:
    """What the generator writes; it takes a while, so it is not done while tests are collected."""
    return generator.generate(generator.read_all())


def test_the_committed_messages_are_up_to_date() -> None:
    assert generator.stale_files(files()) == []


def test_check_exits_with_1_and_one_sentence_when_a_file_is_stale(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generator.main([], tmp_path) == 0
    capsys.readouterr()
    (tmp_path / "produce.py").write_text("edited by hand")
    (tmp_path / "fetch.py").unlink()
    (tmp_path / "left_over.py").write_text("")
    assert generator.main(["--check"], tmp_path) == 1
    said = capsys.readouterr().err
    assert said.startswith(
        "3 of the generated messages are stale (fetch.py, left_over.py, produce.py)"
    )
    assert "python -m headrace.wire.protocol.generator" in said
    assert generator.main([], tmp_path) == 0
    assert generator.stale_files(files(), tmp_path) == []


def test_the_unstable_version_is_left_out() -> None:
    assert range(0, 6) == messages.load("init_producer_id").VERSIONS
    assert not hasattr(messages.load("init_producer_id").InitProducerIdRequest(), "enable2_pc")


def test_facts_of_an_api() -> None:
    produce = messages.load("produce")
    assert messages.API_MODULES[0] == "produce"
    assert (produce.API_KEY, produce.NAME) == (0, "Produce")
    assert (range(3, 14), 9) == (produce.VERSIONS, produce.FLEXIBLE_FROM)
    assert (
        messages.load("sasl_handshake").VERSIONS[-1] < messages.load("sasl_handshake").FLEXIBLE_FROM
    )
    assert messages.METADATA_RECORD_MODULES[2] == "topic_record"


def test_versions_of_the_same_layout_share_a_function() -> None:
    produce = messages.load("produce")
    assert len(set(produce.DECODE_REQUEST.values())) == 3
    assert produce.DECODE_REQUEST[9] is produce.DECODE_REQUEST[12]


def test_every_instance_has_lists_of_its_own() -> None:
    fetch = messages.load("fetch")
    one, other = fetch.FetchRequest(), fetch.FetchRequest()
    one.topics.append(fetch.FetchTopic("a"))
    assert other.topics == []
    assert other.max_bytes == 0x7FFFFFFF
    assert fetch.FetchTopic().topic_id == ZERO_ID


def test_messages_compare_and_print_by_their_fields() -> None:
    fetch = messages.load("fetch")
    assert fetch.FetchTopic("a") == fetch.FetchTopic("a")
    assert fetch.FetchTopic("a") != fetch.FetchTopic("b")
    assert fetch.FetchTopic("a") != "a"
    assert repr(fetch.FetchTopic("a")).startswith("FetchTopic(topic='a', topic_id=b'")


def test_a_nested_name_with_two_meanings_is_told_apart() -> None:
    vote = messages.load("vote")
    assert "vote_granted" in vote.ResponsePartitionData.__slots__
    assert "last_offset" in vote.RequestPartitionData.__slots__
    assert not hasattr(vote, "PartitionData")
    # Request and response mean the same by this one, so it is one class.
    assert hasattr(messages.load("describe_topic_partitions"), "Cursor")


def test_no_decoder_believes_a_count_before_it_is_compared_with_what_remains() -> None:
    """Behaviour cannot show this: without the comparison, Structs would still refuse to read on."""
    used = re.compile(r"range\((n_\w+)|read_int_array\(.*, (n_\w+)|end = pos \+ \((n_\w+)")
    seen = 0
    for name, text in files().items():
        for function in text.split("\ndef ")[1:]:
            compared: set[str] = set()
            for line in function.splitlines():
                if line.endswith(" > size - pos:"):
                    compared |= set(re.findall(r"\bn_\w+", line))
                for match in used.finditer(line):
                    seen += 1
                    count = next(group for group in match.groups() if group)
                    assert count in compared, (name, line)
    everything = "".join(files().values())
    loops = len(re.findall(r"for _ in range\((?!tags)", everything))  # tags: see `tag_count`
    lists = everything.count("= read_int_array(") + len(re.findall(r" in _i_\w+\(view", everything))
    assert seen == loops + lists > 900


@pytest.mark.parametrize("name", ["produce.py", "topic_record.py"])
def test_a_module_imports_only_what_it_needs(name: str) -> None:
    imported = {
        node.module
        for node in ast.walk(ast.parse(files()[name]))
        if isinstance(node, ast.ImportFrom) and node.module
    }
    assert imported <= {
        "__future__",
        "collections.abc",
        "struct",
        "typing",
        "headrace.wire.protocol.errors",
        "headrace.wire.protocol.primitives",
    }
