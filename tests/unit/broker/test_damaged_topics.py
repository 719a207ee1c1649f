"""What a client is told of a partition whose records are damaged on the disk."""

from headrace.broker.handlers.describe_configs import damage_of
from headrace.storage.damage import Cut, Damage
from tests.unit.storage.a_log import ALog


class Topic:
    """A topic, as the settings see it."""

    def __init__(self, *logs):
        self.leaders = [Leader(index, each.log) for index, each in enumerate(logs)]


class Leader:
    def __init__(self, index, log):
        self.index, self.log = index, log


def everything(name):
    return True


def test_a_sound_topic_shows_nothing_new(tmp_path):
    assert damage_of(Topic(ALog(tmp_path)), everything) == []
    assert damage_of(None, everything) == []


def test_damage_and_cuts_are_settings_that_can_only_be_read(tmp_path):
    log = ALog(tmp_path)
    for number in range(9):
        log.append_values(b"%d" % number)
    log.log.active.damage = [Damage(0, 100, 50, 3, 5, "the CRC of the batch does not fit")]
    log.log.cut = Cut(9, 77)
    damaged, cut = damage_of(Topic(log), everything)
    assert (damaged.name, damaged.value) == ("headrace.damaged.offsets", "0:3-4")
    assert (cut.name, cut.value) == ("headrace.cut.offsets", "0:9+77")
    assert damaged.read_only and cut.read_only
