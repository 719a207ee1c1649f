"""`headrace ship logs -`: a process that reads its standard input."""

import json
import subprocess
import sys

from headrace.client import Admin

SHIP = [sys.executable, "-m", "headrace", "ship", "logs", "-"]


def test_a_pipe_is_read_to_its_end_and_lines_are_found(broker, headrace):
    Admin(broker.bootstrap).topics.create("piped", partitions=1)
    given = b"INFO one\nERROR two\nTraceback (most recent call last):\n  File x\nKeyError: 1\n"
    shipped = subprocess.run(
        [*SHIP, "--topic", "piped", "--service", "demo", "--host", "h", "-b", broker.bootstrap],
        input=given,
        capture_output=True,
        timeout=300,
    )
    assert shipped.returncode == 0 and b"2 records written" in shipped.stderr
    found = headrace("logs", "search", "keyerror", "--topic", "piped", "--json")
    [record] = json.loads(found)["records"]
    assert (record["level"], record["service"]) == ("ERROR", "demo")
    shown = headrace("logs", "search", "--topic", "piped")
    assert "INFO demo h  INFO one" in shown and "\n    KeyError: 1\n" in shown


def test_standard_input_that_is_closed_is_one_sentence(broker):
    Admin(broker.bootstrap).topics.create("std", partitions=1)
    words = [*SHIP, "--topic", "std", "--bootstrap", broker.bootstrap]
    closed = ["sh", "-c", 'exec "$@" <&-', "sh", *words]
    refused = subprocess.run(closed, capture_output=True, timeout=300)
    assert refused.returncode == 1 and b"Standard input is closed" in refused.stderr
    assert b"Traceback" not in refused.stderr
