"""A batch that claims gigabytes takes no memory to refuse."""

from __future__ import annotations

import subprocess
import sys

from tests.sockets.attacks import CLAIMS_OF_GIGABYTES, MB, claim_of_gigabytes


def test_bombs_take_no_memory():
    """In a process of its own: what C libraries take is seen only from outside."""
    script = f"""
import resource
from headrace.wire.protocol import compression
from headrace.wire.protocol.errors import MalformedMessage
bombs = {[*map(claim_of_gigabytes, CLAIMS_OF_GIGABYTES)]!r}
for codec, data in bombs:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    try:
        compression.decompress(codec, data, {4 * MB})
    except MalformedMessage:
        pass
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 24 * 1024, (codec, len(data), grown)
"""
    done = subprocess.run(
        [sys.executable, "-"], input=script, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
