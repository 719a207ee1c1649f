"""Addresses such as `s3a://bucket/x` where a folder of this machine is wanted.

Python makes a path of any text: `s3a://bucket/x` would become the folder `s3a:/bucket/x` below the
working directory, and data that is meant for a store would stay on a disk that may be thrown away.
"""

from __future__ import annotations

import re
from pathlib import PurePath

# One slash is accepted too: a path has lost the second one. One letter is a drive of Windows.
ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.*)", re.DOTALL)


def address_in(path: PurePath | str) -> str | None:
    """The address as it was written; None if it is a path."""
    found = ADDRESS.fullmatch(str(path))
    return None if found is None else f"{found[1]}://{found[2]}"
