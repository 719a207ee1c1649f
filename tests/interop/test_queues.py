"""Queues on share groups: the client, the app, HTTP, the command line and the console.

On ours and on Apache Kafka 4.3.
"""

from __future__ import annotations

import itertools
import json
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from headrace.app import App, Message, Retry
from headrace.client import Admin, ClientError, Consumer, Producer, ShareConsumer, ShareRecord
from tests.command_in_process import run_command
from tests.console.served import Served
from tests.interop.brokers import Node, make_node
from tests.interop.tools import PROJECT, kafka_jars, tool
from tests.patience import until
from tests.sockets.services.http.served import Served as HttpServed

_names = (f"jobs-{number}" for number in itertools.count())

SETTINGS = {
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.record.lock.duration.ms": "3000",
    "group.share.min.record.lock.duration.ms": "1000",
}


@pytest.fixture(scope="module", params=["headrace", "apache"])
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    with make_node(request.param, tmp_path_factory.mktemp(request.param), SETTINGS) as node:
        yield node


@pytest.fixture
def topic(node: Node) -> str:
    name = next(_names)
    Admin(node.bootstrap).topics.create(name, partitions=1)
    return name


def put(node: Node, topic: str, count: int, *, partition: int = 0) -> None:
    with Producer(node.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=partition)


def worker(node: Node, topic: str) -> ShareConsumer:
    return ShareConsumer(
        node.bootstrap, topics=[topic], group=f"{topic}-workers", start_from="earliest"
    )


def worker_of(node: Node, topic: str, group: str) -> ShareConsumer:
    return ShareConsumer(node.bootstrap, topics=[topic], group=group)


def some(consumer: ShareConsumer, count: int, within_s: float = 30.0) -> list[ShareRecord]:
    """So many records, in as many polls as it takes."""
    found: list[ShareRecord] = []
    deadline = time.monotonic() + within_s
    while len(found) < count and time.monotonic() < deadline:
        found += consumer.poll(count - len(found))
    assert len(found) == count
    return found


def by_value(records: list[ShareRecord]) -> dict[int, ShareRecord]:
    return {int(record.value or b"-1"): record for record in records}


def test_each_record_has_its_own_end(node: Node, topic: str) -> None:
    """Accepted and rejected records do not come again, released ones do, with their count."""
    put(node, topic, 4)
    with worker(node, topic) as consumer:
        first = by_value(some(consumer, 4))
        assert {record.delivery_count for record in first.values()} == {1}
        consumer.accept(first[0])
        consumer.release(first[1], first[3])
        consumer.reject(first[2])
        assert consumer.commit() == []
        again = by_value(some(consumer, 2))
        assert {number: r.delivery_count for number, r in again.items()} == {1: 2, 3: 2}
        consumer.accept(*again.values())
        assert consumer.commit() == []
        assert consumer.held == 0


def test_two_members_read_one_partition_and_no_record_twice(node: Node, topic: str) -> None:
    put(node, topic, 40)
    with worker(node, topic) as one, worker(node, topic) as other:
        until(lambda: one.assigned > 0 and other.assigned > 0)
        seen: list[int] = []
        for consumer in itertools.islice(itertools.cycle((one, other)), 200):
            records = consumer.poll(5, 0.2)
            consumer.accept(*records)
            assert consumer.commit() == []
            seen += by_value(records)
            if len(seen) >= 40:
                break
        assert sorted(seen) == list(range(40))


def test_closing_gives_everything_back(node: Node, topic: str) -> None:
    put(node, topic, 10)
    with worker(node, topic) as consumer:
        records = some(consumer, 10)
        consumer.accept(*records[:4])
    with worker(node, topic) as successor:
        assert sorted(by_value(some(successor, 6))) == list(range(4, 10))


def test_a_renewed_lock_outlives_its_duration_and_another_does_not(node: Node, topic: str) -> None:
    put(node, topic, 2)
    with worker(node, topic) as consumer, worker(node, topic) as other:
        kept, forgotten = (by_value(some(consumer, 2))[number] for number in (0, 1))
        deadline = time.monotonic() + 5.0
        taken: list[ShareRecord] = []
        while time.monotonic() < deadline:
            consumer.renew(kept)
            assert not [each for each in consumer.commit() if each.first_offset == kept.offset]
            came = other.poll(10, 0.5)
            other.accept(*came)
            assert other.commit() == []
            taken += came
        assert [each.offset for each in taken] == [forgotten.offset]
        assert taken[0].delivery_count > forgotten.delivery_count
        consumer.accept(kept)
        assert consumer.commit() == []


def test_records_that_waited_in_the_client_beyond_their_lock_are_not_returned(
    node: Node, topic: str
) -> None:
    put(node, topic, 10)
    with worker(node, topic) as slow, worker(node, topic) as other:

        def fetched_without_polling_them() -> bool:
            slow.poll(10, 0.0)  # sends the request
            return slow.poll(0, 0.3) == [] and slow.held == 10

        until(fetched_without_polling_them)
        again: list[ShareRecord] = []
        until(lambda: again.extend(other.poll(10, 0.5)) or len(again) == 10, within_s=60)
        assert slow.poll(10, 0.0) == []
        other.accept(*again)
        assert other.commit() == []


def test_a_commit_names_what_a_broker_that_hangs_did_not_answer(node: Node, topic: str) -> None:
    put(node, topic, 2)
    with worker(node, topic) as consumer:
        one, two = some(consumer, 2)
        consumer.accept(one, two)
        os.kill(node.pid, signal.SIGSTOP)
        try:
            refused = consumer.commit(1.0)
        finally:
            os.kill(node.pid, signal.SIGCONT)
        assert [(each.first_offset, each.last_offset) for each in refused] == [(0, 1)]
        assert "may count or not" in refused[0].why
        assert consumer.commit() == []


def test_a_group_of_consumers_is_not_a_queue(node: Node, topic: str) -> None:
    put(node, topic, 1)
    with Consumer(node.bootstrap, topics=[topic], group=f"{topic}-workers") as consumer:
        assert consumer.poll(20.0) is not None
        consumer.commit()
        with pytest.raises(ClientError, match="group"):
            worker(node, topic)


def test_an_app_retries_parks_and_takes_a_redriven_job(node: Node, topic: str) -> None:
    """Job 3 fails at first, job 7 until it is sent again; another worker may take each attempt."""
    put(node, topic, 20)
    attempts: dict[int, list[int]] = {}
    mended = threading.Event()

    def job(value: bytes, message: Message) -> None:
        number = int(value)
        attempts.setdefault(number, []).append(message.attempt)
        if number == 3 and message.attempt == 1:
            raise OSError("not yet")
        if number == 7 and not mended.is_set():
            raise ValueError("broken")

    with ExitStack() as workers:
        for _ in range(2):
            app = App(node.bootstrap, group=f"{topic}.app")
            retry = Retry(attempts=3, first="100ms")
            app.on(topic, queue=True, concurrency=4, retry=retry)(job)
            workers.enter_context(app.running())
        dead = f"{topic}.{topic}_2Eapp.dead"
        until(lambda: len(attempts) == 20 and attempts.get(7) == [1, 2, 3], within_s=60)
        with Consumer(node.bootstrap) as reader:
            reader.assign(reader.partitions_of(dead))
            letter = reader.poll(30)
        assert letter is not None and letter.value == b"7"
        assert letter.header("headrace-dead-attempts") == b"3"
        mended.set()
        words = ("dead-letters", "redrive", dead, "--execute", "--bootstrap", node.bootstrap)
        ended = run_command(*words)
        assert ended.returncode == 0, ended
        until(lambda: len(attempts[7]) == 4, within_s=60)
    assert attempts[3] == [1, 2]
    assert all(made == [1] for number, made in attempts.items() if number not in (3, 7))


def test_a_job_that_takes_longer_than_its_lock_is_done_once(node: Node, topic: str) -> None:
    put(node, topic, 1)
    begun: list[float] = []
    ended = threading.Event()

    def job(value: bytes) -> None:
        begun.append(time.monotonic())
        ended.wait(8)

    with ExitStack() as workers:
        for _ in range(2):
            app = App(node.bootstrap, group=f"{topic}.app")
            app.on(topic, queue=True)(job)
            workers.enter_context(app.running())
        until(lambda: begun, within_s=60)
        until(lambda: time.monotonic() > begun[0] + 5.0, within_s=60)
        ended.set()
    assert len(begun) == 1


def test_a_language_without_a_share_consumer_works_over_http(node: Node, topic: str) -> None:
    put(node, topic, 6)
    with HttpServed(node.bootstrap) as http:

        def ask(what: str, **body: object) -> Any:
            answer = http.ask("POST", f"/queues/{topic}-http/{what}", json.dumps(body).encode())
            assert answer.status == 200, answer.body
            return answer.json()

        def acquire(most: int) -> dict[int, dict[str, Any]]:
            found = ask("acquire", topics=[topic], max_records=most, timeout_ms=10_000)
            return {each["value"]: each for each in found}

        first: dict[int, dict[str, Any]] = {}
        until(lambda: first.update(acquire(6 - len(first))) or len(first) == 6)
        assert {each["delivery_count"] for each in first.values()} == {1}
        assert all(0 < each["lock_ms"] <= 3_000 for each in first.values())
        ids = [first[number]["id"] for number in range(6)]
        assert ask("accept", ids=ids[:3]) == {"refused": []}
        assert ask("reject", ids=ids[3:4]) == {"refused": []}
        assert ask("renew", ids=ids[4:5]) == {"refused": []}
        assert ask("release", ids=ids[5:]) == {"refused": []}
        again = acquire(6)
        assert {number: each["delivery_count"] for number, each in again.items()} == {5: 2}
        refused = ask("accept", ids=[ids[0], "made-up.1"])["refused"]
        assert [each["id"] for each in refused] == [ids[0], "made-up.1"]
    with worker_of(node, topic, f"{topic}-http") as consumer:  # the server gave back what it held
        assert sorted(by_value(some(consumer, 2))) == [4, 5]


def test_the_command_line_and_the_console_show_and_reset_a_share_group(
    node: Node, topic: str
) -> None:
    put(node, topic, 10)
    group, at = f"{topic}-workers", ("--bootstrap", node.bootstrap)
    with worker(node, topic) as consumer, Served(node.bootstrap) as served:
        consumer.accept(*some(consumer, 10)[:6])
        assert consumer.commit() == []
        [shown] = json.loads(run_command("groups", "describe", group, "--json", *at).stdout)
        facts = ("state", "type", "lag", "unknown_partitions")
        assert [shown[each] for each in facts] == ["Stable", "share", 4, 0]
        [member] = shown["members"]
        assert (member["id"], member["assigned"]) == (consumer.member_id, [[topic, 0]])
        [one] = shown["partitions"]
        assert (one["end_offset"], one["lag"]) == (10, 4)
        visitor = served.visitor()
        paths = ("/groups", f"/groups/one?name={group}", f"/topics/{topic}", "/")
        pages = {path: visitor.get(path) for path in paths}
        assert {path: page.status for path, page in pages.items()} == dict.fromkeys(paths, 200)
        assert "Stable" in pages[f"/groups/one?name={group}"].text
        assert ">4<" in pages[f"/groups/one?name={group}"].text
        refused = run_command("groups", "reset", group, "--all-topics", "--to-beginning", *at)
        assert refused.returncode == 1 and "active members" in refused.stderr
    words = ("groups", "reset", group, "--topic", topic, "--to-offset", "4", "--json", *at)
    for more in ((), ("--execute",)):
        plan = json.loads(run_command(*words, *more).stdout)
        assert plan["executed"] is bool(more)
        assert [each["target"] for each in plan["partitions"]] == [4]
    with worker(node, topic) as consumer:
        assert sorted(by_value(some(consumer, 6))) == [4, 5, 6, 7, 8, 9]
    assert run_command("groups", "delete", group, "--yes", *at).returncode == 0
    listed = run_command("groups", "list", "--type", "share", "--json", *at).stdout
    assert group not in listed


def test_the_three_example_programs_share_one_queue(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """examples/queue: curl takes the first mail, Java the second, the app the third and one that
    fails."""
    Admin(node.bootstrap).topics.create("mails", partitions=1)
    folder = PROJECT / "examples" / "queue"
    with Producer(node.bootstrap) as producer, HttpServed(node.bootstrap) as http:

        def mail(to: str) -> None:
            producer.send("mails", json.dumps({"to": to}).encode()).result(30)

        mail("ada@example.com")
        said = subprocess.run(
            [folder / "mailer.sh"], env=os.environ | {"HTTP": http.base}, capture_output=True,
            text=True, check=True, timeout=60,
        ).stdout  # fmt: skip
        assert "sent" in said and "ada@example.com" in said
        http.stop()
        mail("bob@example.com")
        java = subprocess.Popen(
            [tool("java"), "-cp", f"{kafka_jars()}/*", folder / "Mailer.java", node.bootstrap],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        try:
            assert java.stdout is not None
            assert "bob@example.com" in java.stdout.readline()
            groups = Admin(node.bootstrap).groups
            until(lambda: groups.describe(["mailers"])[0].lag == 0)
        finally:
            java.terminate()
            java.wait(30)
        mail("eve@example.com")
        mail("nowhere")
    outbox = tmp_path / "sent.txt"
    monkeypatch.setenv("KAFKA", node.bootstrap)
    monkeypatch.setenv("OUTBOX", str(outbox))
    app = runpy.run_path(str(folder / "mailer.py"))["app"]
    with app.running():
        until(lambda: app.subscriptions[0].stats.parked == 1 and outbox.exists(), within_s=60)
    # The first delivery may have gone to the Java program, whose last request outlives it a moment.
    assert outbox.read_text() in [f"eve@example.com attempt {number}\n" for number in (1, 2)]


@pytest.mark.full
def test_every_job_is_handled_or_parked_over_kills_of_workers_and_the_broker(
    node: Node, topic: str, tmp_path: Path
) -> None:
    put(node, topic, 500)
    started: list[subprocess.Popen[bytes]] = []

    def start() -> None:
        words = [node.bootstrap, topic, str(tmp_path / f"ledger-{len(started)}")]
        command = [sys.executable, "-m", "tests.interop.queue_worker", *words]
        started.append(subprocess.Popen(command, cwd=PROJECT, stderr=subprocess.DEVNULL))

    def handled() -> set[int]:
        texts = [each.read_text() for each in tmp_path.glob("ledger-*")]
        return {int(line) for text in texts for line in text.split("\n")[:-1]}

    try:
        for _ in range(3):
            start()
        until(lambda: len(handled()) >= 100, within_s=120)
        started[0].kill()
        start()
        until(lambda: len(handled()) >= 200, within_s=120)
        started[1].kill()
        start()
        node.kill()
        node.start()
        until(lambda: len(handled()) == 490, within_s=180)
        with Consumer(node.bootstrap) as reader:
            reader.assign(reader.partitions_of(f"{topic}.{topic}_2Eg.dead"))
            parked: set[int] = set()
            until(lambda: parked.update(parked_in(reader)) or len(parked) == 10, within_s=120)
        assert parked == set(range(0, 500, 50))
        groups = Admin(node.bootstrap).groups
        until(lambda: groups.describe([f"{topic}.g"])[0].lag == 0, within_s=120)
    finally:
        for process in started:
            process.kill()
            process.wait()


def parked_in(reader: Consumer) -> list[int]:
    return [int(record.value or b"-1") for record in reader.batch(100, 1.0)]
