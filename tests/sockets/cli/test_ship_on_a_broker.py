"""`headrace ship` and `headrace logs` on a broker: what they say, and how they end.

The shipper itself: tests/sockets/services/shipping. Standard input: tests/processes/cli.
"""

import importlib.util
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.client import Admin
from headrace.client.admin.acls import Acl
from headrace.client.connection import ClientSettings
from headrace.client.lookup.record_reader import RecordReader
from headrace.services.shipping import main
from headrace.services.shipping.positions import FILE
from headrace.testing import Broker
from tests.sockets.cli.conftest import CommandLine
from tests.sockets.nobody import nobody


@pytest.fixture(autouse=True)
def in_our_process(tmp_path, monkeypatch):
    """It keeps its state in a folder of the test, and does not set up the process for itself."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(main, "collect_rarely", lambda: None)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("ship", "logs", "/no/such.log", "--once"), "There is no file /no/such.log."),
        (("ship", "logs", "x", "--topic", "nope"), "There is no topic nope at"),
        (("ship", "logs", "x", "--format", "xml"), "--format is one of auto, json"),
        (("ship", "logs", "x", "--zone", "Moon"), "'Moon' is not a time zone"),
        (("ship", "metrics", "--scrape", "file:///etc"), "is not a URL"),
        (("logs", "search", "--level", "loud"), "loud is not a level"),
        (("logs", "search", "--from", "soon"), "'soon' is not a time"),
    ],
)
def test_what_is_wrong_is_one_sentence(headrace, words, said):
    assert said in headrace.failure(*words)


@pytest.mark.integration  # two samples, a second between them
def test_the_agent_writes_numbers_of_this_machine_and_of_endpoints(broker, headrace):
    Admin(broker.bootstrap).topics.create("metrics", partitions=1)

    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"requests_total 7\n")

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    at, away = f"127.0.0.1:{server.server_port}", nobody()
    words = ("ship", "metrics", "--every", "1", "--samples", "2", "--host", "h")
    try:
        done = headrace.json(
            *words, "--scrape", f"http://{at}/metrics", "--scrape", f"http://{away}/"
        )
    finally:
        server.shutdown()
        server.server_close()
        serving.join()
    assert done["samples"] == 2
    reader = RecordReader(ClientSettings({"bootstrap.servers": broker.bootstrap}), "metrics")
    *_, last = [json.loads(one.value) for one in reader.records()]
    reader.close()
    numbers = last["metrics"]
    assert last["host"] == "h"
    assert {"cpu_percent", "load_1m", "memory_percent", "network_sent_bytes_per_s"} <= set(numbers)
    assert numbers[f'requests_total{{endpoint="{at}"}}'] == 7.0
    assert numbers[f'scrape_up{{endpoint="{away}"}}'] == 0.0


@pytest.mark.skipif(importlib.util.find_spec("pyspark") is not None, reason="Spark is there")
def test_a_search_over_a_table_without_what_reads_it_is_one_sentence(headrace, tmp_path):
    (tmp_path / "tables" / "logs" / "_delta_log").mkdir(parents=True)
    (tmp_path / "tables" / "logs" / "_delta_log" / f"{0:020}.json").write_text("{}\n")
    refused = headrace.failure("logs", "search", "--table", "logs", "--data", str(tmp_path))
    assert "Pipelines need Spark" in refused


@pytest.fixture
def guarded():
    """A broker with a topic that may be seen and not written to, and one that may not be seen."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    settings = {"authorizer.class.name": authorizer, "allow.everyone.if.no.acl.found": "true"}
    with Broker(settings=settings) as one:
        admin = Admin(one.bootstrap)
        for topic in ("seen", "hidden"):
            admin.topics.create(topic, partitions=1)
        me = ("literal", "User:ANONYMOUS", "*")
        admin.acls.add([Acl("topic", "seen", *me, "describe", "allow")])
        admin.acls.add([Acl("topic", "hidden", *me, "write", "deny")])
        yield CommandLine(one.bootstrap)


def test_a_missing_right_is_one_sentence_and_nothing_is_forgotten(guarded, tmp_path):
    (tmp_path / "a.log").write_text("INFO a line\n")
    for topic in ("seen", "hidden"):
        words = ("ship", "logs", str(tmp_path / "a.log"), "--once", "--topic", topic)
        assert "may not" in guarded.failure(*words, "--state", str(tmp_path / topic))
    kept = json.loads((tmp_path / "seen" / FILE).read_text())
    assert kept["files"][0]["offset"] == 0 and kept["target"]["topic"] == "seen"
