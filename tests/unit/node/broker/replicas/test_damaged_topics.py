"""What a client is told of a partition whose records are damaged on the disk."""

import logging
from typing import Any

from headrace.node.broker.handlers.describe_configs import damage_of
from headrace.node.storage.recovery.damage import Cut, Damage
from headrace.wire.protocol.errors import ErrorCode
from tests.unit.node.broker.groups.group_rig import GroupRig
from tests.unit.node.broker.rig import Rig
from tests.unit.node.storage.a_log import ALog


class Topic:
    """A topic, as the settings see it."""

    def __init__(self, *logs):
        self.replicas = [Leader(index, each.log) for index, each in enumerate(logs)]

    def here(self):
        return self.replicas


class Leader:
    def __init__(self, index, log):
        self.index, self.log = index, log


def topic(*logs) -> Any:
    return Topic(*logs)


def everything(name):
    return True


def test_a_sound_topic_shows_nothing_new(tmp_path):
    assert damage_of(topic(ALog(tmp_path)), everything) == []
    assert damage_of(None, everything) == []


def test_damage_and_cuts_are_settings_that_can_only_be_read(tmp_path):
    log = ALog(tmp_path)
    for number in range(9):
        log.append_values(b"%d" % number)
    log.log.active.damage = [Damage(0, 100, 50, 3, 5, "the CRC of the batch does not fit")]
    log.log.cut = Cut(9, 77)
    damaged, cut = damage_of(topic(log), everything)
    assert (damaged.name, damaged.value) == ("headrace.damaged.offsets", "0:3-4")
    assert (cut.name, cut.value) == ("headrace.cut.offsets", "0:9+77")
    assert damaged.read_only and cut.read_only


def test_a_cut_of_the_metadata_log_is_counted_and_said(tmp_path, caplog):
    """Half of a record that a power cut left: nobody was told of it."""
    Rig(tmp_path / "data").create("orders")
    with (tmp_path / "data/__cluster_metadata-0/00000000000000000000.log").open("ab") as file:
        file.write(b"torn" * 20)
    with caplog.at_level(logging.WARNING):
        rig = Rig(tmp_path / "data")
    findings = rig.node.partitions.open_files.findings
    assert (findings.cuts, findings.cut_bytes) == (1, 80)
    assert "80 bytes" in caplog.text
    assert "orders" in rig.node.broker.image.topics


def test_a_damaged_coordinator_goes_on_when_its_topic_skips_damage(tmp_path):
    """Without a new start: the setting is enough."""
    rig = GroupRig(tmp_path / "data", offsets_topic_num_partitions=1)
    rig.find("g")
    rig.create("orders")
    for offset in (5, 777):
        assert rig.commit("g", "orders", offset) == ErrorCode.NONE
    rig.stop()
    [path] = (tmp_path / "data/__consumer_offsets-0").glob("*.log")
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    rig = GroupRig(tmp_path / "data", offsets_topic_num_partitions=1)
    assert rig.commit("g", "orders", 800) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    rig.alter(2, "__consumer_offsets", headrace_skip_damaged="true")
    assert rig.committed("g", "orders") == 5, "the last good commit"
    assert rig.commit("g", "orders", 800) == ErrorCode.NONE
    assert rig.committed("g", "orders") == 800
