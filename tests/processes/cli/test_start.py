"""`headrace start`: what it loads, what it shows, how it ends, how it refuses."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.cli.node.start import panel, welcome
from headrace.client.admin.admin import Admin
from headrace.client.admin.groups import Groups, Move
from headrace.client.connection import connection

START = [sys.executable, "-m", "headrace", "start", "--listen", "127.0.0.1:0"]


def refusal(*words: str) -> str:
    said = subprocess.run([*START, *words], capture_output=True, text=True, timeout=300)
    assert said.returncode == 1, said.stderr
    assert said.stderr.count("\n") == 1, said.stderr
    return said.stderr


def test_it_says_where_it_is_and_ends_cleanly(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with subprocess.Popen(
            [*START, "--json", "--data", str(tmp_path)], stdout=subprocess.PIPE, text=True
        ) as node:
            assert node.stdout is not None
            ready = json.loads(node.stdout.readline())
            assert ready["data"] == str(tmp_path)
            assert ready["pid"] == node.pid
            host, _, port = ready["address"].rpartition(":")
            socket.create_connection((host, int(port)), timeout=300).close()
            node.send_signal(number)
            assert node.wait(60) == 0
        assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_console_runs_beside_it_if_asked_for_and_ends_with_it(tmp_path: Path) -> None:
    """Also after a kill -9. Nobody watches here, so without --console there is none."""
    with subprocess.Popen(
        [*START, "--json", "--data", str(tmp_path), "--console", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        text=True,
    ) as node:
        assert node.stdout is not None
        address = json.loads(node.stdout.readline())["console"]
        host, _, port = address.removeprefix("http://").rpartition(":")
        asked = http.client.HTTPConnection(host, int(port), timeout=300)
        asked.request("GET", "/topics")
        answer = asked.getresponse()
        assert answer.status == 200
        assert b"There are no topics yet" in answer.read()
        node.kill()
        node.wait(60)
        # The console closes the connection that it held for us when it ends.
        assert asked.sock is not None
        asked.sock.settimeout(60)
        assert asked.sock.recv(1) == b""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        assert place in refusal("--console", place, "--data", str(tmp_path))
    with subprocess.Popen(
        [*START, "--json", "--data", str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as node:
        assert node.stdout is not None
        assert "console" not in json.loads(node.stdout.readline())
        node.terminate()
        assert node.wait(60) == 0


def test_the_console_beside_it_is_told_where_to_park(tmp_path: Path) -> None:
    place = str(tmp_path / "parked")
    assert "add --console" in refusal("--console-park-to", place, "--data", str(tmp_path))
    with subprocess.Popen(
        [*START, "--json", "--data", str(tmp_path / "node"), "--console", "127.0.0.1:0",
         "--console-park-to", place],
        stdout=subprocess.PIPE,
        text=True,
    ) as node:  # fmt: skip
        assert node.stdout is not None
        ready = json.loads(node.stdout.readline())
        cluster = connection(bootstrap=ready["address"])
        Admin(cluster).topics.create("orders", partitions=1)
        Groups(cluster).move("billing", [Move("orders", 0, None, 0, 0)])
        host, _, port = ready["console"].removeprefix("http://").rpartition(":")
        asked = http.client.HTTPConnection(host, int(port), timeout=300)
        asked.request("GET", "/groups/backlog?name=billing")
        assert f"is parked in {place}".encode() in asked.getresponse().read()
        node.terminate()
        assert node.wait(60) == 0


def test_it_loads_no_client_and_no_rich() -> None:
    script = (
        "import sys, headrace.cli.main, headrace.cli.node.start; print('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=300, check=True
    )
    loaded = set(done.stdout.splitlines())
    assert "headrace.server.server" in loaded
    assert not {name for name in loaded if name.startswith("headrace.client")}
    assert not loaded & {"confluent_kafka", "rich", "pydantic", "asyncio"}


def test_refusals_are_one_sentence(tmp_path: Path) -> None:
    data = ["--data", str(tmp_path)]
    assert "--insecure" in refusal("--listen", "0.0.0.0:0", *data)
    tiered = "remote.log.storage.system.enable"
    assert tiered in refusal("--set", f"{tiered}=true", *data)
    assert "num.partitions" in refusal("--set", "num.partitions=many", *data)
    assert "cannot be read" in refusal("--config", str(tmp_path / "missing"), *data)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"127.0.0.1:{port}" in refusal("--listen", f"127.0.0.1:{port}", *data)


def test_a_properties_file_is_read_and_options_win(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text(f"log.dirs={tmp_path}/from-file\nnum.partitions=4\n")
    with subprocess.Popen(
        [*START, "--json", "--config", str(file), "--data", str(tmp_path / "from-option")],
        stdout=subprocess.PIPE,
        text=True,
    ) as node:
        assert node.stdout is not None
        assert json.loads(node.stdout.readline())["data"] == str(tmp_path / "from-option")
        node.terminate()
        assert node.wait(60) == 0


def test_the_panel_is_a_box_on_a_wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = welcome("localhost:9092", "/data")
    assert "address  localhost:9092" in lines
    assert sum("greetings" in line for line in lines) == 3
    monkeypatch.setenv("COLUMNS", "100")
    framed = panel(lines, framed=True).splitlines()
    assert len({len(line) for line in framed}) == 1
    assert framed[0][0] == "╭"
    monkeypatch.setenv("COLUMNS", "20")
    assert panel(lines, framed=True) == panel(lines, framed=False) == "\n".join(lines)


def test_commands_to_try_name_the_address_unless_it_is_the_usual_one() -> None:
    assert not any(" -b " in line for line in welcome("localhost:9092", "/d")[:8])
    assert any("consume greetings --follow -b h:1" in line for line in welcome("h:1", "/d"))
