"""Stories of one partition on three brokers: what is done, and what is then true.

    kill 1
    run 2s                  -> broker 2 leads epoch 1; ISR: 2, 3

Lines that begin with # are comments. Partition 0 of `orders` has its replicas on brokers 1, 2 and
3, in this order, and needs two in sync. Times are short: a follower lags after 0.5 s, a session
ends after 0.9 s, preferred leaders are looked for every 0.2 s. What may stand on the left is in
COMMANDS, on the right in FACTS; both are matched as whole lines.
"""

from __future__ import annotations

from pathlib import Path

from headrace.node.metadata.image import PartitionImage
from headrace.wire.protocol.errors import ErrorCode
from headrace.wire.protocol.record_batch import Record, build
from tests.transcripts.text_story import Phrases, milliseconds, numbers, tell_story
from tests.unit.node.replication.checkers import content
from tests.unit.node.replication.nodes import WALL_MS, Answer, BrokerNode
from tests.unit.node.replication.weather import CONTROLLER
from tests.unit.node.replication.world import BROKERS, Client, World

NOT_YET = "no answer yet"


class Story:
    def __init__(self) -> None:
        self.world = World(1)
        self.world.weather.run(1_000)
        self.world.controller.create_topic_on([[1, 2, 3]])
        self.world.weather.run(1_500)
        self.client = Client(self.world, 30)
        self.answers: dict[str, str] = {}

    @property
    def partition(self) -> PartitionImage:
        return self.world.controller.partitions()[0]

    def broker(self, broker_id: str) -> BrokerNode:
        return self.world.brokers[int(broker_id)]

    # The left side

    def run(self, seconds: str) -> None:
        weather = self.world.weather
        weather.run(weather.now_ms + milliseconds(seconds))

    def produce(self, name: str, acks: str, broker_id: str | None) -> None:
        target = int(broker_id) if broker_id else self.partition.leader
        batch = build([Record(None, name.encode(), timestamp=WALL_MS)])
        self.answers[name] = NOT_YET

        def then(answer: Answer | None) -> None:
            code = ErrorCode.REQUEST_TIMED_OUT if answer is None else ErrorCode(answer.code)
            self.answers[name] = code.name

        request = 0, batch, 1, acks == "all"
        self.client.call(
            lambda: self.world.find(target), target, "produce", request, then, within_ms=60_000
        )
        self.run("0.03")  # it arrives

    def cut(self, broker_id: str) -> None:
        others = [CONTROLLER, *(b for b in BROKERS if b != int(broker_id))]
        self.world.weather.cut(int(broker_id), others, inwards=True, outwards=True)

    def heal(self) -> None:
        self.world.weather.cuts.clear()

    def pause(self, broker_id: str, seconds: str) -> None:
        until_ms = self.world.weather.now_ms + milliseconds(seconds)
        self.broker(broker_id).paused_until_ms = until_ms

    def kill(self, broker_id: str) -> None:
        self.broker(broker_id).kill(loses=False)

    def stop(self, broker_id: str) -> None:
        self.broker(broker_id).stopping = True

    def start(self, broker_id: str) -> None:
        assert not self.broker(broker_id).alive, f"broker {broker_id} runs"
        self.world.start(int(broker_id))

    # The right side

    def leads(self, broker_id: str, epoch: str) -> None:
        found = self.partition.leader, self.partition.leader_epoch
        assert found == (int(broker_id), int(epoch)), found

    def has_no_leader(self) -> None:
        assert self.partition.leader == -1, self.partition.leader

    def isr_is(self, brokers: str) -> None:
        assert sorted(self.partition.isr) == numbers(brokers), self.partition.isr

    def eligible_are(self, brokers: str) -> None:
        eligible = sorted(self.partition.eligible_leader_replicas)
        assert eligible == numbers(brokers), eligible

    def answered(self, name: str, code: str) -> None:
        assert self.answers[name] == code, self.answers[name]

    def acknowledged(self, name: str, negated: str | None) -> None:
        assert (self.answers[name] == "NONE") is (negated is None), self.answers[name]

    def waits(self, name: str) -> None:
        assert self.answers[name] == NOT_YET, self.answers[name]

    def has(self, broker_id: str, verb: str, name: str) -> None:
        values = [value for _, value in content(self.broker(broker_id).replicas[0])]
        assert (name.encode() in values) is (verb == "has"), values

    def shows(self, broker_id: str, verb: str, name: str) -> None:
        replica = self.broker(broker_id).replicas[0]
        values = [value for at, value in content(replica) if at < replica.high_watermark]
        assert (name.encode() in values) is (verb == "shows"), values

    def is_down(self, broker_id: str) -> None:
        assert not self.broker(broker_id).alive

    def all_are_equal(self) -> None:
        contents = [content(self.broker(str(b)).replicas[0]) for b in BROKERS]
        assert contents[0] == contents[1] == contents[2], contents


COMMANDS: Phrases = (
    (r"run ([\d.]+)s", Story.run),
    (r"produce (\w+) acks=(all|1)(?: at (\d))?", Story.produce),
    (r"cut (\d)", Story.cut),
    (r"heal", Story.heal),
    (r"pause (\d) for ([\d.]+)s", Story.pause),
    (r"kill (\d)", Story.kill),
    (r"stop (\d)", Story.stop),
    (r"start (\d)", Story.start),
)
FACTS: Phrases = (
    (r"broker (\d) leads epoch (\d+)", Story.leads),
    (r"nobody leads", Story.has_no_leader),
    (r"ISR: ([\d, ]+|nobody)", Story.isr_is),
    (r"ELR: ([\d, ]+|nobody)", Story.eligible_are),
    (r"(\w+) is answered (\w+)", Story.answered),
    (r"(\w+) is (not )?acknowledged", Story.acknowledged),
    (r"(\w+) waits", Story.waits),
    (r"broker (\d) (has|lacks) (\w+)", Story.has),
    (r"broker (\d) (shows|hides) (\w+)", Story.shows),
    (r"broker (\d) is down", Story.is_down),
    (r"all logs are equal", Story.all_are_equal),
)


def tell(path: Path) -> None:
    tell_story(path, Story(), commands=COMMANDS, facts=FACTS)
