"""The console over HTTP on a real broker: every page, every action, and what it refuses.

What clients wrote is hostile throughout: it must come out as text, in pages and in downloads.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.parse import quote

import pytest

from headrace.app.retries.dead_letters import why_headers
from headrace.client.admin.groups import Groups
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings, connection
from headrace.client.lookup.record_reader import RecordReader
from headrace.client.producer.producer import Producer
from headrace.testing import Broker
from tests.console.full_cluster import HOSTILE, fill
from tests.console.pages import PAGES
from tests.console.served import Served, Visitor
from tests.interop.brokers import free_port
from tests.patience import until
from tests.sockets.fills import FILLS


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        fill(running.bootstrap)
        yield running


@pytest.fixture(scope="module")
def at(broker: Broker) -> ClientSettings:
    return connection(bootstrap=broker.bootstrap)


@pytest.fixture(scope="module")
def console(broker: Broker) -> Iterator[Served]:
    with Served(broker.bootstrap) as served:
        yield served


@pytest.fixture
def visitor(console: Served) -> Visitor:
    return console.visitor()


def records(at: ClientSettings, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    with closing(RecordReader(at, topic)) as reader:
        return [(record.key, record.value) for record in reader.records()]


# ---- every page


@pytest.mark.parametrize("path", PAGES)
def test_every_page_answers_and_runs_nothing_that_others_wrote(visitor: Visitor, path: str) -> None:
    answer = visitor.get(path)
    assert answer.status == 200, answer.said()
    scripts = re.findall(r"<\s*script\b", answer.text)
    ours = re.findall(
        r'<script type="module" src="/assets/[a-z]+\.js\?v=[0-9a-f]{12}">', answer.text
    )
    assert len(scripts) == len(ours)
    assert "<img src=x" not in answer.text and "<b>oup" not in answer.text
    assert "\x1b" not in answer.text and "\u202e" not in answer.text
    policy = answer.headers["Content-Security-Policy"]
    assert "script-src 'self';" in policy and "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"


def test_a_download_is_data_and_never_a_page(visitor: Visitor) -> None:
    answer = visitor.get("/topics/hostile/messages.ndjson?from=oldest")
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert answer.headers["Content-Disposition"] == 'attachment; filename="hostile.ndjson"'
    lines = [json.loads(line) for line in answer.text.splitlines()]
    assert [lines[0]["value"], len(lines)] == [HOSTILE, 5]
    assert lines[3]["value_base64"]


def test_pages_of_messages_lead_through_the_whole_topic(visitor: Visitor) -> None:
    path: str | None = "/topics/orders/messages?n=25"
    seen: list[str] = []
    while path is not None:
        answer = visitor.get(path)
        seen += re.findall(r'aria-label="Message in (partition \d+ at offset \d+)"', answer.text)
        following = re.search(r'rel="next" href="([^"]+)"', answer.text)
        path = following[1].replace("&amp;", "&") if following else None
    assert len(seen) == len(set(seen)) == 120


def test_a_filter_finds_what_matches_and_says_what_it_looked_at(visitor: Visitor) -> None:
    expression = quote('value.amount > 800 and headers["kind"] == "refund"')
    answer = visitor.get(f"/topics/orders/messages?where={expression}")
    assert "found among 120 messages" in answer.said()
    refused = visitor.get("/topics/orders/messages?where=" + quote("open('/etc/passwd')"))
    assert refused.status == 400


def test_a_range_of_time_has_an_end_from_both_sides(visitor: Visitor, at: ClientSettings) -> None:
    Topics(at).create("ranged", partitions=1)
    with Producer(at) as producer:
        for number in range(6):
            producer.send_sync("ranged", f"v{number}", timestamp_ms=1_700_000_000_000 + number)
    ends = "&until=1700000000004"
    for start in ("from=newest", "from=oldest", "from=time&time=1700000000002"):
        answer = visitor.get(f"/topics/ranged/messages?{start}{ends}")
        shown = re.findall(r'<span class="value text">(v\d)</span>', answer.text)
        wanted = ["v0", "v1", "v2", "v3"] if "time=" not in start else ["v2", "v3"]
        assert sorted(shown) == wanted, start
        assert 'rel="next"' not in answer.text
        assert 'name="until" value="1700000000004"' in answer.text, "the field keeps it"
    page = visitor.get(f"/topics/ranged/messages?from=oldest&n=1{ends}")
    following = re.search(r'rel="next" href="([^"]+)"', page.text)
    assert following is not None and "until=1700000000004" in following[1]
    assert "v1" in visitor.get(following[1].replace("&amp;", "&")).said()


def test_what_cannot_be_read_or_is_not_there_is_said_in_a_sentence(visitor: Visitor) -> None:
    for path, status, words in (
        ("/topics/nowhere", 404, "There is no topic nowhere."),
        ("/topics/nowhere/messages", 404, "There is no topic nowhere."),
        ("/groups/one?name=nobody", 404, "There is no group nobody."),
        ("/nonsense", 404, "There is no such page."),
        ("/topics/orders/messages?partition=99", 502, "has no partition 99"),
        ("/topics/orders/messages?at=x", 400, "is invalid"),
        ("/topics/orders/messages?from=time&time=soon", 400, "is not a time"),
        ("/topics/orders/messages?until=late", 400, "is not a time"),
        ("/topics?page=-1", 400, "must be a whole number"),
        ("/dead-letters/orders.billing.dead/letter?at=x", 400, "is not PARTITION/OFFSET"),
    ):
        answer = visitor.get(path)
        assert (answer.status, words in answer.said()) == (status, True), (path, answer.said())
    assert visitor.get("/topics/orders/message?partition=0&offset=99999").status == 404


# ---- actions


@pytest.mark.integration
def test_a_topic_is_made_changed_grown_emptied_and_deleted(
    visitor: Visitor, at: ClientSettings
) -> None:
    made = visitor.post("/create-topic", {"name": "made", "partitions": "2", "kept": "3600000"})
    assert "Created made. " in made.said()
    assert "headrace topics create made --partitions 2 --config retention.ms=3600000" in made.said()
    [topic] = Topics(at).describe(["made"])
    assert (len(topic.partitions), topic.setting("retention.ms", "")) == (2, "3600000")

    visitor.post("/topics/made/settings", {"name": "retention.ms", "value": "7200000"})
    assert Topics(at).settings_of("made")["retention.ms"].value == "7200000"
    visitor.post("/topics/made/settings", {"name": "retention.ms", "action": "reset"})
    assert Topics(at).settings_of("made")["retention.ms"].source != "topic"
    wrong = visitor.post("/topics/made/settings", {"name": "retention.ms", "value": "soon"})
    assert wrong.status == 502

    visitor.post("/topics/made/partitions", {"partitions": "4"})
    visitor.post("/topics/made/send", {"key": "k", "value": "v", "headers": "a: 1"})
    assert records(at, "made") == [(b"k", b"v")]
    assert "Type the name" in visitor.post("/topics/made/empty", {"typed": "mad"}).said()
    visitor.post("/topics/made/empty", {"typed": "made"})
    assert records(at, "made") == []

    assert visitor.post("/topics/made/delete", {"typed": ""}).status == 400
    assert "made" in Topics(at).cluster.topics
    assert "Deleted made" in visitor.post("/topics/made/delete", {"typed": "made"}).said()
    assert "made" not in Topics(at).cluster.topics


def test_a_first_message_makes_its_topic(visitor: Visitor, at: ClientSettings) -> None:
    sent = visitor.post("/first-message", {"topic": "hello", "value": HOSTILE})
    assert "Sent to hello, partition 0, offset 0." in sent.said()
    assert records(at, "hello") == [(None, HOSTILE.encode())]
    assert "<script>document" not in sent.text


def test_sending_to_a_topic_that_is_not_there_makes_none(
    visitor: Visitor, at: ClientSettings
) -> None:
    assert visitor.post("/topics/mistyped/send", {"value": "x"}).status == 502
    assert "mistyped" not in Topics(at).cluster.topics


def test_a_tombstone_and_a_chosen_partition_are_sent(visitor: Visitor, at: ClientSettings) -> None:
    Topics(at).create("chosen", partitions=3)
    visitor.post("/topics/chosen/send", {"key": "k", "tombstone": "1", "partition": "2"})
    with closing(RecordReader(at, "chosen")) as reader:
        [record] = reader.records()
    assert (record.key, record.value, record.partition) == (b"k", None, 2)


def test_a_group_is_reset_after_a_dry_run_and_deleted(visitor: Visitor, at: ClientSettings) -> None:
    path = "/groups/reset?name=warehouse&way=beginning"
    before = Groups(at).committed("warehouse")
    dry = visitor.get(path)
    assert "headrace groups reset warehouse --all-topics --to-beginning" in dry.said()
    assert Groups(at).committed("warehouse") == before
    done = visitor.post("/groups/reset", {"name": "warehouse", "way": "beginning"})
    assert "--to-beginning --execute" in done.said()
    assert set(Groups(at).committed("warehouse").values()) == {0}
    assert visitor.post("/groups/delete", {"name": "warehouse", "typed": "w"}).status == 400
    visitor.post("/groups/delete", {"name": "warehouse", "typed": "warehouse"})
    assert not Groups(at).is_there("warehouse")


def test_letters_are_sent_again_edited_and_put_away(visitor: Visitor, at: ClientSettings) -> None:
    path = "/dead-letters/orders.billing.dead"
    one = visitor.post(path, {"action": "redrive", "at": "0/0", "reason": "mended"})
    assert "1 letter sent again to the group that failed." in one.said()
    assert "headrace dead-letters redrive orders.billing.dead 0/0 --reason mended --execute" in (
        one.said()
    )
    assert records(at, "orders.billing.retry") == [(b"k0", b'{"order": 1000}')]
    edited = {"action": "redrive", "at": "0/1", "value": '{"order":\r\n7}'}
    before = records(at, "orders.billing.retry")
    diff = visitor.post(path, edited).text
    assert "<del>− {&#34;order&#34;: 1002}</del>" in diff and "<ins>+ 7}</ins>" in diff
    assert records(at, "orders.billing.retry") == before, "nothing is sent before the diff is seen"
    assert visitor.post(path, {**edited, "action": "discard"}).status == 400
    said = visitor.post(path, {**edited, "confirmed": "1"}).said()
    assert "printf %s ... | headrace dead-letters redrive orders.billing.dead 0/1 --value-file" in (
        said
    )
    assert (b"k2", b'{"order":\n7}') in records(at, "orders.billing.retry")
    away = visitor.post(
        path, {"action": "discard", "scope": "filter", "error": "TimeoutError", "reason": "old"}
    )
    assert "letters discarded." in away.said()
    assert "TimeoutError" not in visitor.get(path).said()
    assert "discarded by" in visitor.get(f"{path}?settled=1").said()
    again = visitor.get(f"{path}/letter?at=0/0").said()
    assert "redriven by" in again and "mended" in again
    assert visitor.post(path, {"action": "redrive"}).status == 400


def test_a_mistyped_filter_leaves_the_form_and_says_where(visitor: Visitor) -> None:
    answer = visitor.get(f"/topics/orders/messages?key=abc&where={quote('value.amount >> ')}")
    assert answer.status == 400
    assert 'name="key" value="abc"' in answer.text
    assert 'value="value.amount &gt;&gt;" ' in answer.text
    assert "invalid syntax at character 16" in answer.said()
    assert "unknown" not in answer.said()
    assert 'aria-describedby="mistake"' in answer.text
    answer = visitor.get("/topics/orders/messages?from=nowhere")
    assert answer.status == 400 and 'role="search"' in answer.text


def test_ordinary_records_are_not_dead_letters(visitor: Visitor) -> None:
    for path in ("/dead-letters/orders", "/dead-letters/orders/letter?at=0/0"):
        answer = visitor.get(path)
        assert answer.status == 404
        assert "Topic orders is not a dead-letter topic" in answer.said()


def test_the_dot_tells_whether_a_broker_answers(visitor: Visitor) -> None:
    assert '<span class="dot"></span>' in visitor.get("/topics").text
    with Served("127.0.0.1:1") as served:
        lonely = served.visitor()
        text = lonely.get("/topics").text
        assert json.loads(lonely.get("/live/connection").text) == {"answers": False}
    assert '<span class="dot bad"></span>' in text and "no broker answers" in text
    assert json.loads(visitor.get("/live/connection").text) == {"answers": True}


def test_the_activity_is_that_of_this_cluster(
    broker: Broker, visitor: Visitor, console: Served
) -> None:
    audit = console.site.console.audit
    audit.note("ann", "", "/topics/x/delete", "Deleted x.", done=True, cluster="another")
    visitor.post("/topics/orders/settings", {})
    said = visitor.get("/security").said()
    assert "Deleted x." not in said
    assert audit.recent[-1].cluster == visitor_cluster(broker)


def visitor_cluster(broker: Broker) -> str:
    return str(Groups(connection(bootstrap=broker.bootstrap)).cluster.cluster_id)


# ---- live parts


def test_a_tail_shows_what_comes_as_text(console: Served, at: ClientSettings) -> None:
    Topics(at).create("live", partitions=1)
    visitor = console.visitor()
    begun = visitor.frames("/topics/live/tail/stream", 2)
    assert begun[0].startswith("event: begun")
    assert begun[1].startswith("event: quiet")
    frames = _frames_while_sending(console, 60)
    rows = [row for frame in frames for row in frame["rows"]]
    assert sum(frame["skipped"] for frame in frames) + len(rows) == 60
    assert rows[-1]["value"] == "59 <b>"


@pytest.mark.integration
def test_a_tail_goes_on_after_a_restart_of_the_broker() -> None:
    with Broker() as broker, Served(broker.bootstrap) as served:
        Topics(connection(bootstrap=broker.bootstrap)).create("live", partitions=1)
        frames = _frames_while_sending(served, 3, before=broker.restart)
    assert [row["value"] for frame in frames for row in frame["rows"]][-1] == "2 <b>"


def _frames_while_sending(
    console: Served, count: int, before: Callable[[], None] = lambda: None
) -> list[Any]:
    """Messages that are sent once the stream has begun, until all are told of."""
    visitor = console.visitor()
    asked = http.client.HTTPConnection(visitor.name, timeout=30)
    asked.request("GET", "/topics/live/tail/stream", headers={"Host": visitor.name})
    answer = asked.getresponse()
    found: list[Any] = []
    told, event, sent = 0, "", False
    while told < count:
        line = answer.readline().decode()
        assert line, "the stream ended"
        if line.startswith("event: "):
            event = line.removeprefix("event: ").strip()
        if line.startswith("data: ") and event == "messages":
            frame = json.loads(line.removeprefix("data: "))
            found.append(frame)
            told += len(frame["rows"]) + frame["skipped"]
        if event == "begun" and not sent:
            sent = True
            before()
            with console.site.console.access.sender() as producer:
                for number in range(count):
                    producer.send("live", f"{number} <b>")
                producer.flush()
    asked.close()
    return found


@pytest.mark.integration
def test_rates_are_streamed_once_there_are_two_samples(visitor: Visitor) -> None:
    [frame] = visitor.frames("/live/rates", 1)
    assert frame.startswith("event: rates\ndata: {")


# ---- who is answered


def test_a_stranger_is_refused(console: Served, visitor: Visitor) -> None:
    assert visitor.get("/", Host="evil.example").status == 421
    token = visitor.get("/create-topic").token()
    fields = {"name": "stolen"}

    def refused(**headers: str) -> int:
        return visitor.post("/create-topic", fields, token=token, **headers).status

    assert refused(Origin="http://evil.example") == 403
    assert refused(Sec_Fetch_Site="cross-site") == 403
    assert refused(Content_Type="text/plain") == 415
    assert visitor.post("/create-topic", fields, token="0" * 64).status == 403
    other = console.visitor()
    assert other.post("/create-topic", fields, token=token).status == 403
    assert (
        "stolen"
        not in Topics(connection(bootstrap=console.site.console.access.bootstrap)).cluster.topics
    )
    large = visitor.post("/topics/orders/send", {"value": "x" * (5 << 20)})
    assert large.status == 413


def test_the_cookie_is_for_us_alone(console: Served) -> None:
    answer = console.visitor().get("/create-topic")
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie


def test_a_read_only_console_changes_nothing(broker: Broker, at: ClientSettings) -> None:
    with Served(broker.bootstrap, read_only=True) as served:
        visitor = served.visitor()
        assert 'action="/create-topic"' not in visitor.get("/topics").text
        token = visitor.get("/create-topic").token()
        refused = visitor.post("/create-topic", {"name": "never"}, token=token)
        assert (refused.status, "read-only" in refused.said()) == (403, True)
    assert "never" not in Topics(at).cluster.topics


@pytest.mark.integration
def test_a_cluster_that_is_away_is_a_sentence_and_comes_back() -> None:
    port = free_port()
    with Broker(port=port) as broker, Served(broker.bootstrap) as served:
        visitor = served.visitor()
        assert visitor.get("/topics").status == 200
        broker.stop()
        gone = visitor.get("/topics")
        assert gone.status == 503 and "No Kafka broker answers" in gone.said()
        with Broker(port=port):
            assert visitor.get("/topics").status == 200


@pytest.mark.integration
def test_letters_are_sent_again_at_a_rate_with_progress_and_can_be_stopped(
    console: Served, visitor: Visitor, at: ClientSettings
) -> None:
    _slow_letters(at)
    letters = "/dead-letters/payments.slow.dead"
    asked = {"action": "redrive", "scope": "filter", "error": "Timeout", "reason": "slowly"}
    begun = visitor.post(letters, asked | {"rate": "1"})
    assert "are being sent again, 1 per second" in begun.said()
    assert "--rate 1 --execute" in begun.said() and "under way" in begun.said()
    twice = visitor.post(letters, asked | {"rate": "1"})
    assert twice.status == 502 and "stop that first" in twice.said()
    until(lambda: " 0 sent again" not in visitor.get(letters).said())
    [frame] = visitor.frames(f"{letters}/progress", 1)
    assert '"over": false' in frame
    [job] = console.site.console.jobs.of("redrive", "payments.slow.dead")
    assert "Stopping: " in visitor.post(f"{letters}/stop", {"job": str(job.id)}).said()
    until(lambda: "under way" not in visitor.get(letters).said())
    assert "event: over" in visitor.frames(f"{letters}/progress", 2)[1]
    assert 0 < job.work.sent < 40 and job.stopped_by and not job.failure
    assert "slowly" in visitor.get(f"{letters}/done").said()
    assert visitor.post(f"{letters}/stop", {"job": "99"}).status == 400
    assert visitor.get("/dead-letters/not-there/progress").status == 404


def _slow_letters(at: ClientSettings) -> None:
    for name in ("payments.slow.dead", "payments.slow.retry"):
        Topics(at).create(name, partitions=2)
    why = why_headers(
        TimeoutError("too slow"),
        attempts=3,
        first_at_ms=1,
        last_at_ms=2,
        origin=("payments", 0, 1),
        group="slow",
    )
    with Producer(at, settings=FILLS) as producer:
        for number in range(40):
            producer.send("payments.slow.dead", f"letter {number}", key="k", headers=why)


def test_the_latest_of_each_key_is_the_latest_on_every_page(
    visitor: Visitor, at: ClientSettings
) -> None:
    Topics(at).create("states", partitions=1)
    with Producer(at, settings=FILLS) as producer:
        for round in ("old", "middle", "new"):
            for number in range(40):
                producer.send("states", f"{round} {number}", key=f"k{number}")
    shown: list[str] = []
    path = "/topics/states/messages?latest=1&n=25"
    while path:
        page = visitor.get(path)
        shown += re.findall(r'class="value text">((?:old|middle|new) \d+)<', page.text)
        following = re.search(r'rel="next" href="([^"]+)"', page.text)
        path = following[1].replace("&amp;", "&") if following else ""
    assert sorted(shown) == sorted(f"new {number}" for number in range(40))


def test_a_topic_is_emptied_as_the_command_does(visitor: Visitor, at: ClientSettings) -> None:
    Topics(at).create("to-empty", partitions=2)
    with Producer(at, settings=FILLS) as producer:
        for number in range(10):
            producer.send("to-empty", str(number))
    done = visitor.post("/topics/to-empty/empty", {"typed": "to-empty"})
    assert "10 offsets were deleted" in done.said() and "topics empty to-empty --yes" in done.said()
    assert records(at, "to-empty") == []
    gone = visitor.post("/topics/not-there/empty", {"typed": "not-there"})
    assert gone.status == 404, "a topic that is not there is not called empty"


def test_a_page_creates_no_topic_by_looking(visitor: Visitor, at: ClientSettings) -> None:
    before = {each.name for each in Topics(at).all()}
    for end in ("", "/messages", "/message?partition=0&offset=0", "/settings", "/messages.ndjson"):
        assert visitor.get(f"/topics/made-by-looking{end}").status == 404
    visitor.get("/topics/made-by-looking/tail/stream")
    visitor.get("/life?topic=made-by-looking&key=k")
    visitor.get("/dead-letters/made-by-looking.dead")
    visitor.get("/delayed?topic=made-by-looking")
    assert {each.name for each in Topics(at).all()} == before
