"""Prometheus endpoints that are slow, huge, packed or secret: the agent's samples come in time."""

import gzip
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headrace.services.shipping import scraper as scraping
from headrace.services.shipping.scraper import ScrapeFailed, Scraper, fetched
from tests.patience import until
from tests.sockets.nobody import nobody

pytestmark = pytest.mark.usefixtures("quick_producers")


@contextmanager
def answering(body, *, headers=(), status=200, seen=None):
    class Endpoint(BaseHTTPRequestHandler):
        def do_GET(self):
            if seen is not None:
                seen.append(dict(self.headers))
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endpoint)
    serving = threading.Thread(target=server.serve_forever, args=(0.01,))
    serving.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        serving.join()


@contextmanager
def dripping():
    """Sends a byte of its answer before any one wait for bytes is over, without end."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def drip():
        peer, _ = listener.accept()
        with peer:
            peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
            while not over.wait(0.02):
                try:
                    peer.sendall(b"#")
                except OSError:
                    return

    dripper = threading.Thread(target=drip)
    dripper.start()
    try:
        yield f"127.0.0.1:{listener.getsockname()[1]}"
    finally:
        over.set()
        dripper.join()
        listener.close()


def scraped(*urls, within_s=300.0):
    """What each gives: a text, or why not."""
    found = {}
    for url, answer in Scraper(urls, within_s=within_s).all():
        found[url] = str(answer) if isinstance(answer, ScrapeFailed) else answer
    return found


class Clock:
    """Stands for the module `time` of the scraper: each look is one of `looks`, then the last."""

    def __init__(self, *looks):
        self.looks = list(looks)

    def monotonic(self):
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        return look() if callable(look) else look


def test_an_answer_that_never_ends_is_given_up(monkeypatch):
    monkeypatch.setattr(scraping, "time", Clock(0.0, 0.0, 301.0))
    with dripping() as slow, pytest.raises(ScrapeFailed, match="did not end in time"):
        fetched(f"http://{slow}/", within_s=300.0)


def test_an_endpoint_that_does_not_answer_costs_the_others_nothing(monkeypatch):
    release = threading.Event()

    def fetch(url):
        if url == "slow":
            release.wait()
        return url

    def time_is_up():
        until(lambda: scraper._readings["quick"].is_over)
        return 5.0

    scraper = Scraper(["slow", "quick"], within_s=5, fetch=fetch)
    monkeypatch.setattr(scraping, "time", Clock(0.0, time_is_up))
    answers = dict(scraper.all())
    release.set()
    until(lambda: not scraper.is_reading)
    assert "within 5 s" in str(answers["slow"]) and isinstance(answers["slow"], ScrapeFailed)
    assert answers["quick"] == "quick"


def test_endpoints_are_read_beside_each_other():
    gate = threading.Barrier(3, timeout=300)

    def meet(url):
        gate.wait()
        return url

    scraper = Scraper(["one", "two", "three"], within_s=300, fetch=meet)
    assert [answer for _, answer in scraper.all()] == ["one", "two", "three"]


def test_an_endpoint_that_is_still_being_read_is_not_read_twice():
    release, begun = threading.Event(), []

    def hang(url):
        begun.append(url)
        release.wait()
        return "late"

    scraper = Scraper(["one"], within_s=0.01, fetch=hang)
    for _ in range(3):
        [(_, answer)] = scraper.all()
        assert isinstance(answer, ScrapeFailed)
    until(lambda: begun)
    assert begun == ["one"]
    release.set()
    until(lambda: not scraper.is_reading)
    list(scraper.all())
    until(lambda: not scraper.is_reading)
    assert len(begun) == 2


def test_a_packed_answer_is_refused_and_never_unpacked():
    bomb = gzip.compress(b"a 1\n" * 1_000_000)
    with answering(bomb, headers=[("Content-Encoding", "gzip")]) as at:
        assert "gzip" in scraped(f"http://{at}/")[f"http://{at}/"]


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [(500, b"", "500"), (302, b"", "302"), (200, b"#" * 4_300_000, "more than 4,194,304 bytes")],
)
def test_what_is_no_answer_says_why(status, body, said):
    with answering(body, status=status, headers=[("Location", "http://127.0.0.1:9/")]) as at:
        assert said in scraped(f"http://{at}/")[f"http://{at}/"]


def test_a_password_is_sent_and_never_shown():
    seen = []
    with answering(b"a 1\n", seen=seen) as at:
        assert list(scraped(f"http://ada:s3cret@{at}/").values()) == ["a 1\n"]
        assert seen[0]["Authorization"] == "Basic YWRhOnMzY3JldA=="
    [refused] = scraped(f"http://ada:s3cret@{nobody()}/").values()
    assert "s3cret" not in refused
