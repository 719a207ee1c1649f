"""An acknowledgement put together from pieces is, byte for byte, the one that the codec writes."""

import pytest

from headrace.node.broker.records.acknowledgements import FIRST_VERSION, acknowledgement
from headrace.node.broker.replicas.topics import Topic
from headrace.wire.protocol.messages import produce


@pytest.mark.parametrize("version", range(FIRST_VERSION, produce.VERSIONS.stop))
def test_every_version(version):
    topic = Topic("orders", b"0123456789abcdef")
    for index, base_offset, append_time, start_offset in ((0, 0, -1, 0), (7, 2**40, 10**12, 5)):
        partition = produce.PartitionProduceResponse(
            index, 0, base_offset, append_time, start_offset
        )
        whole = produce.ProduceResponse(
            [produce.TopicProduceResponse(topic.name, topic.id, [partition])]
        )
        pieces = []
        produce.ENCODE_RESPONSE[version](whole, pieces.append)
        for _ in range(2):  # the first time it is made, then remembered
            made = acknowledgement(topic, index, version, base_offset, append_time, start_offset)
            assert made == b"".join(pieces)
