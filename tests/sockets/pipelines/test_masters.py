"""The master of a Spark cluster is asked for before Spark is started."""

from __future__ import annotations

import socket

import pytest

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark import session


def test_a_master_that_is_not_there_is_said_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        session.must_answer(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(
        PipelineError, match=f"No Spark master answers .127.0.0.1:{port}: .*refused"
    ):
        session.must_answer(f"spark://127.0.0.1:{port}")
    with pytest.raises(PipelineError, match="write spark://HOST:PORT"):
        session.must_answer("spark://somewhere")
    session.must_answer("yarn")  # Spark knows where that is
