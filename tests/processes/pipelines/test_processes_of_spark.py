"""Processes around Spark: the Java it is given, and the Spark of an earlier run."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from headrace.pipelines.failure import PipelineError
from headrace.pipelines.spark.java import wrapped
from headrace.pipelines.stream.folder import Folder


def test_the_packaged_java_is_not_asked_for_a_module_it_lacks(tmp_path: Path) -> None:
    echo = tmp_path / "echo"
    echo.write_text('#!/bin/sh\nprintf "%s|" "$@"\n')
    echo.chmod(0o755)
    java = wrapped(echo, tmp_path / "cache") / "bin" / "java"
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "Main", "*"]
    said = subprocess.run([str(java), *given], capture_output=True, text=True, check=True)
    assert said.stdout == "-cp|a b|Main|*|"


def test_the_spark_of_the_run_before_is_waited_for(tmp_path: Path) -> None:
    folder = Folder(tmp_path, "p")
    folder.wait_for_old_spark(ours=1)  # there was none
    named_so = ["sh", "-c", "echo begun; sleep 600; exit", "SparkSubmit"]
    with subprocess.Popen(named_so, start_new_session=True, stdout=subprocess.PIPE) as spark:
        try:
            assert spark.stdout is not None
            assert spark.stdout.readline() == b"begun\n"  # a moment before, it has no name yet
            folder.keep_spark(spark.pid)
            folder.wait_for_old_spark(ours=spark.pid)  # it is our own
            with pytest.raises(PipelineError, match=f"process {spark.pid}"):
                folder.wait_for_old_spark(ours=1, within_s=0)
        finally:
            os.killpg(spark.pid, signal.SIGKILL)
    folder.wait_for_old_spark(ours=1, within_s=0)
    folder.keep_spark(os.getpid())  # its number is another's now
    folder.wait_for_old_spark(ours=1, within_s=0)
