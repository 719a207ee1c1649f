"""Widening, parking and letting go from the page of a group's backlog, with the way back."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from headrace import App
from headrace.client.admin.acls import Acl
from headrace.client.admin.admin import Admin
from headrace.client.admin.groups import Groups, Move
from headrace.client.admin.topics import Topics
from headrace.client.connection import ClientSettings, connection
from headrace.client.lookup.record_pages import Browser
from headrace.client.producer.producer import Producer
from headrace.console.jobs.owner import BACKLOG
from headrace.services.backlog.drain import drain
from headrace.services.backlog.widening import Widening
from headrace.testing import Broker
from tests.console.served import Answer, Served, Visitor
from tests.sockets.console.test_logins_on_a_broker import PASSWORD, at, plain_settings
from tests.sockets.fills import FILLS
from tests.sockets.server.a_secured_server import Certificates, SecuredServer

pytestmark = pytest.mark.integration

PATIENCE_S = 180
GROUP = "billing"


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@dataclass
class Desk:
    """One topic with its group behind, and somebody in front of the page."""

    cluster: ClientSettings
    served: Served
    visitor: Visitor
    topic: str

    def page(self, **asked: str) -> Answer:
        more = "".join(f"&{name}={value}" for name, value in asked.items())
        return self.visitor.get(f"/groups/backlog?name={GROUP}{more}")

    def plan(self, way: str, **asked: str) -> str:
        return self.page(way=way, topic=self.topic, **asked).said()

    def do(self, action: str, **asked: str) -> Answer:
        return self.visitor.post(f"/groups/{action}", {"name": GROUP, "topic": self.topic, **asked})

    def shows(self, sentence: str) -> None:
        eventually(lambda: sentence in self.page().said())

    def stop(self) -> None:
        [job, *_] = self.served.site.console.jobs.of(BACKLOG, GROUP, self.topic)
        self.visitor.post("/groups/backlog/stop", {"name": GROUP, "job": str(job.id)})
        eventually(lambda: job.is_over)

    def over(self) -> None:
        [job, *_] = self.served.site.console.jobs.of(BACKLOG, GROUP, self.topic)
        eventually(lambda: job.is_over)
        assert not job.failure

    def committed(self) -> list[int]:
        found = Groups(self.cluster).committed(GROUP)
        return [found[self.topic, p] for p in range(2)]

    def noted(self) -> list[str]:
        return [change.what for change in self.served.site.console.audit.recent]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as running:
        yield running


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('parked') / 'parked.db'}"


@pytest.fixture(scope="module")
def served(broker: Broker, place: str) -> Iterator[Served]:
    with Served(broker.bootstrap, park_to=place) as running:
        yield running


numbers = itertools.count()


def behind(cluster: ClientSettings, topic: str, count: int) -> None:
    Topics(cluster).create(topic, partitions=2)
    with Producer(cluster, settings=FILLS) as producer:
        for number in range(count):
            producer.send_one_way(topic, b"%d" % number, key=f"k{number % 5}", partition=number % 2)
    Groups(cluster).move(GROUP, [Move(topic, p, None, 0, 0) for p in range(2)])


@pytest.fixture
def desk(broker: Broker, served: Served) -> Desk:
    cluster = connection(bootstrap=broker.bootstrap)
    topic = f"orders{next(numbers)}"
    behind(cluster, topic, 200)
    return Desk(cluster, served, served.visitor(), topic)


def drained_by(broker: Broker, topic: str, handled: list[int]) -> App:
    app = App(broker.bootstrap, group=GROUP, delay="off")

    @app.on(topic, order_by="key")
    def bill(number: str) -> None:
        handled.append(int(number))

    drain(app)
    return app


def test_a_backlog_is_widened_from_the_page_and_handed_back(desk: Desk, broker: Broker) -> None:
    assert "Widen" in desk.plan("widen", times="3")
    begun = desk.do("widen", times="3").said()
    assert f"goes through {desk.topic}.billing.wide" in begun
    assert f"headrace backlog widen {desk.topic} --group billing --times 3 --execute" in begun
    desk.shows("Start consumers of group billing on topic")
    twice = desk.do("widen", times="3")
    assert twice.status == 502 and "let it end, or stop it first" in twice.said()
    [frame] = desk.visitor.frames(f"/groups/backlog/progress?name={GROUP}", 1)
    assert '"forwarded": "200"' in frame and '"share"' in frame
    handled: list[int] = []
    with drained_by(broker, desk.topic, handled).running():
        eventually(lambda: len(handled) == 200)
        desk.shows("Everything is drained: stop the consumers of group billing.")
    desk.over()
    page = desk.page().said()
    assert "handed back" in page and "start its consumers as usual" in page
    assert sorted(handled) == list(range(200)) and desk.committed() == [100, 100]
    assert f"{desk.topic}.billing.wide" not in Topics(desk.cluster).cluster.topics
    [noted] = [line for line in desk.noted() if line.endswith("for billing: done")]
    assert noted.startswith(f"Widening {desk.topic}")


def test_a_widening_that_was_stopped_goes_on_from_the_page(desk: Desk, broker: Broker) -> None:
    desk.do("widen", times="3")
    desk.shows("Start consumers of group billing on topic")
    desk.stop()
    page = desk.page().said()
    assert "not run by this console" in page and "Go on …" in page and "Abort …" in page
    assert "It began already" in desk.plan("widen")
    with drained_by(broker, desk.topic, []).running():
        desk.shows(f"Widening {desk.topic} to {desk.topic}.billing.wide · not run by this console")
        desk.do("widen")
        desk.shows("Everything is drained")
    desk.over()
    assert desk.committed() == [100, 100]


def test_a_widening_of_the_command_line_is_shown_and_aborted(desk: Desk) -> None:
    widening = Widening(desk.cluster)
    running = widening.run(widening.plan(desk.topic, GROUP, 3), by="somebody else")
    next(running)
    running.close()
    page = desk.page().said()
    assert "by somebody else" in page and "Abort …" in page
    [frame] = desk.visitor.frames(f"/groups/backlog/progress?name={GROUP}", 1)
    assert f'"widen/{desk.topic}"' in frame
    plan = desk.plan("abort")
    assert "Nothing is lost" in plan and "Goes on at" in plan
    assert f"headrace backlog widen {desk.topic} --group billing --abort --execute" in plan
    assert desk.do("widen/abort").status == 200
    desk.over()
    assert desk.committed() == [0, 0]
    assert f"{desk.topic}.billing.wide" not in Topics(desk.cluster).cluster.topics
    assert "without" in desk.page().said()
    assert desk.do("widen/abort").status == 502  # there is none any more


def returned(desk: Desk) -> int:
    with closing(Browser(desk.cluster, f"{desk.topic}.billing.retry")) as browser:
        starts = browser.beginnings(browser.partitions)
        page = browser.onwards(starts, want=1_000, accepts=lambda seen: seen.is_data)
    return len(page.found)


def test_a_backlog_is_parked_and_brought_back_in_parts(desk: Desk, place: str) -> None:
    Topics(desk.cluster).create(f"{desk.topic}.billing.retry", partitions=2)
    plan = desk.plan("park")
    assert "Up to 200 records are copied into sqlite:///" in plan
    assert f"--group billing --to {place} --execute" in plan
    assert "Nothing of this group is parked" in desk.page().said() or "Parked" in desk.page().said()
    assert "is being parked" in desk.do("park", reason="a busy day").said()
    desk.over()
    page = desk.page().said()
    assert "200 records parked" in page and "the group continues after them" in page
    assert desk.committed() == [100, 100]
    assert "200 records wait in sqlite" in desk.plan("bring-back")
    some = desk.do("bring-back", key="k3", rate="100000").said()
    assert "--key k3 --rate 100000 --execute" in some
    desk.over()
    assert returned(desk) == 40
    plan = desk.plan("bring-back")
    assert "160 records wait" in plan
    desk.do("bring-back", rate="100000")
    desk.over()
    assert returned(desk) == 200
    assert "0 records wait" in desk.plan("bring-back")
    assert "Nothing of" in desk.do("bring-back").said()


def test_a_return_that_was_stopped_goes_on_with_the_same_conditions(desk: Desk) -> None:
    Topics(desk.cluster).create(f"{desk.topic}.billing.retry", partitions=2)
    desk.do("park")
    desk.over()
    desk.do("bring-back", rate="1", where="offset >= 0")
    eventually(lambda: returned(desk) > 0)
    desk.stop()
    page = desk.page().text
    found = re.search(r'href="(/groups/backlog\?[^"]*way=bring-back[^"]*where=[^"]*)"', page)
    assert found is not None
    other = desk.do("bring-back", rate="100000")
    assert other.status == 502 and "by other conditions" in other.said()
    desk.do("bring-back", rate="100000", where="offset >= 0")
    desk.over()
    assert returned(desk) == 200


def test_what_is_too_old_becomes_a_dead_letter(desk: Desk) -> None:
    refused = desk.plan("expire", older="1h")
    assert "has no dead letters" in refused
    Topics(desk.cluster).create(f"{desk.topic}.billing.dead", partitions=2)
    assert "At most 0 records older than 1h" in desk.plan("expire", older="1h")
    assert desk.do("expire", older="1h").status == 502
    plan = desk.plan("expire", older="0ms")
    assert "At most 200 records" in plan
    desk.do("expire", older="0ms")
    desk.over()
    assert desk.committed() == [100, 100]
    assert desk.page(way="expire", topic=desk.topic, older="soon").status == 400


def test_a_group_that_reads_is_told_on_the_page(desk: Desk, broker: Broker) -> None:
    app = App(broker.bootstrap, group=GROUP, delay="off")

    @app.on(desk.topic)
    def bill(number: str) -> None:
        pass

    with app.running():
        eventually(lambda: bool(Groups(desk.cluster).members_of([GROUP]).get(GROUP)))
        page = desk.page(way="widen", topic=desk.topic)
        assert page.status == 200 and "has active members" in page.said()


def test_a_folder_is_a_place_too_and_without_one_the_page_says_so(
    broker: Broker, desk: Desk, tmp_path: Path
) -> None:
    with Served(broker.bootstrap) as without:
        desk.served, desk.visitor = without, without.visitor()
        plan = desk.plan("park")
        assert "--park-to" in plan and f"{desk.topic} --group billing --to parked" in plan
        assert desk.do("park").status == 400
        assert "--park-to" in desk.plan("bring-back")
    with Served(broker.bootstrap, park_to=str(tmp_path / "parked")) as folder:
        desk.served, desk.visitor = folder, folder.visitor()
        assert "Nothing of this group is parked" in desk.page().said()
        assert not (tmp_path / "parked").exists()
        desk.do("park")
        desk.over()
        assert "200 records parked" in desk.page().said()
    assert list((tmp_path / "parked").rglob("records-*.parquet"))


def test_a_console_that_only_reads_offers_and_does_nothing(broker: Broker, desk: Desk) -> None:
    with Served(broker.bootstrap, read_only=True, park_to="/nowhere") as reads:
        desk.served, desk.visitor = reads, reads.visitor()
        page = desk.page(way="widen", topic=desk.topic)
        assert 'action="/groups/widen"' not in page.text
        token = reads.visitor().get("/create-topic").token()
        for action in ("widen", "widen/abort", "park", "bring-back", "expire", "backlog/stop"):
            fields = {"name": GROUP, "topic": desk.topic}
            assert desk.visitor.post(f"/groups/{action}", fields, token=token).status == 403
    assert not Path("/nowhere").exists() and desk.committed() == [0, 0]


def test_people_do_what_their_rights_allow_and_jobs_end_with_their_session(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    with SecuredServer(tmp_path / "node", "SASL_PLAINTEXT", **plain_settings()) as node:
        admin_at = at(node, "admin")
        behind(admin_at, "orders", 20)
        rights = [("topic", "orders", "describe"), ("topic", "orders", "read")]
        rights += [("group", GROUP, "read")]
        Admin(admin_at).acls.add(
            [Acl(kind, name, "literal", "User:ann", "*", what, "allow")
             for kind, name, what in rights]
        )  # fmt: skip
        more = {"login": True, "tls": (certificates.server, None), "park_to": str(tmp_path / "p")}
        with Served(at(node, "sampler"), **more) as served:
            ann, bob, admin = (served.visitor(certificates.ca) for _ in range(3))
            for visitor, name in ((ann, "ann"), (bob, "bob"), (admin, "admin")):
                visitor.log_in(name, PASSWORD)
            asked = {"name": GROUP, "topic": "orders"}
            assert ann.post("/groups/park", asked).status == 403
            assert str(tmp_path) not in ann.get("/groups/backlog?name=billing").text
            admin.post("/groups/widen", asked)
            job: Any
            [job] = served.site.console.jobs.of(BACKLOG, GROUP)
            eventually(lambda: job.work.status is not None)
            assert bob.get("/groups/backlog/progress?name=billing").status != 200
            assert bob.post("/groups/backlog/stop", {"name": GROUP, "job": "1"}).status != 200
            stranger = ann.post("/groups/backlog/stop", {"name": GROUP, "job": str(job.id)})
            assert stranger.status == 403 and not job.stopped_by
            admin.post("/logout", {})
            eventually(lambda: job.is_over)
            assert job.stopped_by == "the end of the session"
