"""The page with a pipeline's numbers: where it is served, and what is said of a bad address."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.metrics import served
from headrace.pipelines.stream.folder import Folder

ROWS = 'headrace_pipeline_rows_total{pipeline="revenue"} 60\n'


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    folder = Folder(tmp_path, "revenue")
    folder.state.mkdir(parents=True)
    folder.keep_progress({"rows_total": 60})
    return folder


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def free_port(family: socket.AddressFamily, host: str) -> int:
    with socket.create_server((host, 0), family=family) as listening:
        return int(listening.getsockname()[1])


@pytest.mark.parametrize(
    ("family", "host", "shown"),
    [(socket.AF_INET, "127.0.0.1", "127.0.0.1"), (socket.AF_INET6, "::1", "[::1]")],
)
def test_numbers_are_served_while_it_runs(
    folder: Folder, family: socket.AddressFamily, host: str, shown: str
) -> None:
    try:
        address = f"{shown}:{free_port(family, host)}"
    except OSError:
        pytest.skip(f"this machine has no {host}")
    page = f"http://{address}/metrics"
    with served(folder, address), urllib.request.urlopen(page, timeout=60) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert ROWS in answer.read().decode()
    with pytest.raises(OSError):
        urllib.request.urlopen(page, timeout=60)


def test_an_address_that_is_taken_or_none_is_refused(folder: Folder, taken: socket.socket) -> None:
    address = f"127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(PipelineError, match=f"Cannot listen on {address}"), served(folder, address):
        pass
    with pytest.raises(PipelineError, match="is not HOST:PORT"), served(folder, "9000"):
        pass
