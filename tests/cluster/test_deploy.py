"""What the files in `deploy/` start, as processes: no container is needed to see that it runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.brokers import answers, free_port

PROJECT = Path(__file__).resolve().parents[2]
DEPLOY = PROJECT / "deploy"
HEADRACE = str(Path(sys.executable).with_name("headrace"))
READY_WITHIN_S = 240.0


@contextmanager
def running(command: list[str], port: int, folder: Path, **variables: str) -> Iterator[None]:
    """Until it is told to end by SIGTERM, after which it must end well."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    log = folder / f"{port}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"PATH": path} | variables,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        yield
        assert process.poll() is None, log.read_text()
        process.terminate()
        assert process.wait(READY_WITHIN_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while not answers(port):
        assert time.monotonic() < deadline, f"nobody answers at {port}"
        time.sleep(0.1)


def headrace(*arguments: str, given: bytes = b"") -> bytes:
    done = subprocess.run([HEADRACE, *arguments], input=given, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def test_the_compose_files_node_starts_and_tells_each_listener_its_own_address(
    tmp_path: Path,
) -> None:
    text = (DEPLOY / "compose.yaml").read_text("utf-8")
    command = re.findall(r"^      - (\S+)$", text, re.M)
    assert command[0] == "start" and len(command) == text.count("\n      - ")
    ports = {number: free_port() for number in (9092, 9100, 29092)}
    places = {
        "/data/node": str(tmp_path / "node"),
        "//node:": "//localhost:",
        "0.0.0.0": "127.0.0.1",
    }
    for old, new in places.items():
        command = [word.replace(old, new) for word in command]
    command = [re.sub(r"(?<=:)(\d+)", lambda n: str(ports[int(n[1])]), word) for word in command]
    with running([HEADRACE, *command], ports[9092], tmp_path):
        wait_for(ports[9092])
        outside, inside = (f"localhost:{ports[number]}" for number in (9092, 29092))
        headrace("produce", "tea", "--bootstrap", outside, given=b"green\n")
        assert headrace("consume", "tea", "--bootstrap", inside) == b"green\n"
        assert inside.encode() in headrace("brokers", "list", "--bootstrap", inside)
        assert outside.encode() in headrace("brokers", "list", "--bootstrap", outside)


def test_three_brokers_of_the_script_are_a_cluster_and_start_again(tmp_path: Path) -> None:
    clients, brokers, controllers = ([free_port() for _ in range(3)] for _ in range(3))
    bootstrap = f"localhost:{clients[0]}"

    @contextmanager
    def broker(number: int) -> Iterator[None]:
        with running(
            [str(DEPLOY / "broker.sh")],
            clients[number],
            tmp_path,
            NODE=str(number + 1),
            DATA=str(tmp_path / f"node-{number + 1}"),
            CLIENTS=f"localhost:{clients[number]}",
            BROKERS=f"localhost:{brokers[number]}",
            CONTROLLERS=",".join(f"localhost:{port}" for port in controllers),
            BIND="127.0.0.1",
        ):
            yield

    with broker(0), broker(1), broker(2):
        for port in clients:
            wait_for(port)
        headrace("topics", "create", "tea", "--bootstrap", bootstrap)
        headrace("produce", "tea", "--bootstrap", bootstrap, given=b"green\n")
        assert b"1,2,3" in sorted_replicas(headrace("topics", "describe", "tea", "-b", bootstrap))
    with broker(0), broker(1), broker(2):  # its folders are there already
        for port in clients:
            wait_for(port)
        assert headrace("consume", "tea", "--bootstrap", bootstrap) == b"green\n"


def sorted_replicas(described: bytes) -> bytes:
    """Lists of three brokers in their order."""
    return re.sub(
        rb"\b([123]),\s?([123]),\s?([123])\b",
        lambda found: b",".join(sorted(found.groups())),
        described,
    )
