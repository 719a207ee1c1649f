"""What a group reads in one number: the very number of Apache Kafka 4.3.1.

The numbers below are what its `Utils.computeGroupHash` gave for images with these brokers and
topics. Both brokers in turn on one folder: `tests/interop/test_data_folders_groups.py`.
"""

import pytest

from headrace.node.coordination.group.metadata_hash import metadata_hash
from headrace.node.metadata.image import BrokerImage, MetadataImage, PartitionImage, TopicImage
from tests.unit.node.broker.groups.group_readers import Reader, describe
from tests.unit.node.broker.groups.group_rig import GroupRig

LONG = "a.topic-with_a.very.long-name." * 8 + "123456789"
NO_RACKS = {1: None}
# Java sorts texts by their UTF-16: the fourth before the fifth. An empty rack is one, too.
RACKS = {1: "east", 2: "", 3: None, 4: "\U0001f600 rack", 5: "\uff21-rack", 6: "east"}
FENCED = 4
REPLICAS: dict[str, list[tuple[int, ...]]] = {
    "a": [(1,)],
    "orders": [(1,)] * 4,
    "payments": [(1,)] * 13,
    LONG: [(1,)] * 3,
    "wide": [(1,)] * 1000,
    "spread": [(1, 2, 3), (4, 5, 6), (5, 4, 1), (9, 1), (3,)],  # nobody is broker 9
}
IDS = {
    "a": "00000000000000010000000000000002",
    "orders": "fedcba98765432108899aabbccddeeff",
    "payments": "0123456789abcdef7fffffffffffffff",
    LONG: "ff" * 16,
    "wide": "0000000000000007fffffffffffffff9",
    "spread": "00000000000000090000000000000009",
}


def image_of(racks):
    brokers = {
        number: BrokerImage(number, number, bytes(16), (), {}, rack, number == FENCED, False, ())
        for number, rack in racks.items()
    }
    topics = {
        name: TopicImage(
            name,
            bytes.fromhex(IDS[name]),
            tuple(PartitionImage(each, each, each[0], 0, 0, ()) for each in replicas),
        )
        for name, replicas in REPLICAS.items()
    }
    return MetadataImage("cluster", brokers=brokers, topics=topics)


@pytest.mark.parametrize(
    ("names", "without_racks", "with_racks"),
    [
        (["a"], -4_926_522_702_573_481_343, 8_669_791_506_052_685_699),
        (["orders"], 4_782_365_281_026_921_864, -7_523_059_933_066_772_254),
        (["payments"], 6_974_224_840_180_903_050, 2_982_576_162_408_833_293),
        ([LONG], -7_040_317_473_328_770_676, -7_190_861_487_783_272_199),
        (["wide"], 7_411_391_656_861_416_749, -7_178_177_796_209_093_707),
        (["spread"], 9_172_420_940_127_339_582, 4_298_956_531_420_428_052),
        (["nothing"], 0, 0),
        (["orders", "a"], 675_509_890_575_513_114, 4_621_753_341_340_677_539),
        (
            ["a", "nothing", "orders", "payments"],
            -4_178_603_673_459_585_040,
            -8_450_304_651_611_960_194,
        ),
        (
            ["a", "orders", "payments", LONG, "wide", "spread"],
            -1_915_843_451_396_710_811,
            2_060_137_363_265_670_010,
        ),
    ],
)
def test_it_is_apaches_number(names, without_racks, with_racks):
    assert metadata_hash(names, image_of(NO_RACKS)) == without_racks
    assert metadata_hash(reversed(names), image_of(RACKS)) == with_racks


def test_a_group_finds_its_topics_unchanged_until_its_broker_moves_to_another_rack(tmp_path):
    def started(rack):
        rig = GroupRig(tmp_path / "data", broker_rack=rack)
        rig.find("g")
        return rig

    rig = started("east")
    rig.create("orders", 4)
    reader = Reader(rig, "g", "a", "orders")
    reader.beat()
    for rack, epoch in (("east", 2), ("west", 3), ("west", 3)):
        rig.stop()
        rig = reader.rig = started(rack)
        reader.beat()
        assert (reader.epoch, describe(rig).group_epoch) == (epoch, epoch)
