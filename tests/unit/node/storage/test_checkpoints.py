"""Small files: what they say, to the byte, and what is made of damaged ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.node.storage import checkpoints
from headrace.node.storage.checkpoints import MalformedCheckpoint
from headrace.wire.protocol import uuids

OFFSETS = {("orders", 0): 17, ("orders", 1): 0, ("a.b_c-d", 12): 2**40}


def test_offsets():
    data = checkpoints.offsets_to_bytes(OFFSETS)
    assert data == b"0\n3\norders 0 17\norders 1 0\na.b_c-d 12 1099511627776\n"
    assert checkpoints.offsets_from_bytes(data) == OFFSETS
    assert checkpoints.offsets_from_bytes(b"") == {}
    assert checkpoints.offsets_to_bytes({}) == b"0\n0\n"


def test_epochs():
    data = checkpoints.epochs_to_bytes([(0, 0), (4, 19)])
    assert data == b"0\n2\n0 0\n4 19\n"
    assert checkpoints.epochs_from_bytes(data) == [(0, 0), (4, 19)]


@pytest.mark.parametrize(
    "damaged",
    [
        b"1\n0\n",
        b"1",
        b"0\n2\na 0 1\n",
        b"0\n1\na 0\n",
        b"0\n1\na x 1\n",
        b"0\nx\n",
        b"\xff\xfe\n1\n",
        b"0\n1\na 0 1\nb 0 1\n",
    ],
)
def test_damaged_offsets(damaged):
    with pytest.raises(MalformedCheckpoint):
        checkpoints.offsets_from_bytes(damaged)


def test_topic_id():
    topic_id = uuids.from_text("4BOuQb6mTQaM4ZYNXxzqHA")
    data = checkpoints.topic_id_to_bytes(topic_id)
    assert data == b"version: 0\ntopic_id: 4BOuQb6mTQaM4ZYNXxzqHA"
    assert checkpoints.topic_id_from_bytes(data) == topic_id
    assert checkpoints.topic_id_from_bytes(data + b"\n") == topic_id
    for damaged in (b"", b"version: 0", b"version: 0\ntopic_id: short", b"version: x\n", b"\0" * 9):
        with pytest.raises(MalformedCheckpoint):
            checkpoints.topic_id_from_bytes(damaged)
    zero = b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"
    with pytest.raises(MalformedCheckpoint):
        checkpoints.topic_id_from_bytes(zero)


def test_properties_as_java_reads_and_writes_them():
    theirs = (
        b"#\n#Sun Nov 15 20:46:00 UTC 2026\ncluster.id=4BOuQb6mTQaM4ZYNXxzqHA\n"
        b"directory.id=qgF0kGtHTzO_0eO8Uc2bzw\nnode.id=1\nversion=1\n"
    )
    properties = {
        "cluster.id": "4BOuQb6mTQaM4ZYNXxzqHA",
        "directory.id": "qgF0kGtHTzO_0eO8Uc2bzw",
        "node.id": "1",
        "version": "1",
    }
    assert checkpoints.properties_from_bytes(theirs) == properties
    ours = checkpoints.properties_to_bytes(properties)
    assert ours == b"\n".join(theirs.split(b"\n")[2:])


@given(
    st.dictionaries(
        st.from_regex(r"[a-z.]{1,9}", fullmatch=True), st.from_regex(r"[!-~]*", fullmatch=True)
    )
)
def test_properties_come_back(properties):
    data = checkpoints.properties_to_bytes(properties)
    assert checkpoints.properties_from_bytes(data) == properties


def test_damaged_properties():
    with pytest.raises(MalformedCheckpoint):
        checkpoints.properties_from_bytes(b"version")


def test_clean_shutdown():
    data = checkpoints.clean_shutdown_to_bytes(42)
    assert data == b'{"version":0,"brokerEpoch":42}'
    assert checkpoints.broker_epoch_of_clean_shutdown(data) == 42
    for other in (b"", b"{}", b"[]", b"\0", b'{"version":0,"brokerEpoch":null}'):
        assert checkpoints.broker_epoch_of_clean_shutdown(other) == -1
