"""The table of contents of the messages is cheap to import."""

from __future__ import annotations

import subprocess
import sys


def test_the_table_of_contents_loads_no_message() -> None:
    script = (
        "import sys, headrace.wire.protocol.messages as m;"
        "loaded = [n for n in sys.modules if n.startswith(m.__name__ + '.')];"
        "sys.exit(len(loaded))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
