"""Fills the caches of the interop tests, so that no test waits for a download: `make tools`.

What is there is left as it is; a second run costs nothing.
"""

from __future__ import annotations

import sys

from tests.interop import ecosystem
from tests.interop.class_archive import class_archive
from tests.interop.java_session import session_classes
from tests.interop.tools import built_go_program, installed_node_program, kafka_jars

CACHES = (
    kafka_jars,
    session_classes,
    class_archive,
    built_go_program,
    installed_node_program,
    ecosystem.ecosystem_jars,
    ecosystem.ecosystem_classes,
    ecosystem.ecosystem_python,
    ecosystem.spark_jars,
)

if __name__ == "__main__":
    for fill in CACHES:
        try:
            fill()
        except AssertionError as failure:  # Maven's or pip's own words
            sys.exit(f"{fill.__name__} could not be filled: {failure}")
