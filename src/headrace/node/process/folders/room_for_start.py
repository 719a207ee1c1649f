"""How much room on the disk a start needs; for the sentence that a full disk is answered with.

An estimate from above. A start writes its epoch, its registration and a few small files; for each
partition an index, a time index, and perhaps leader epochs and a snapshot of its producers, of a
block each; and index entries for what it reads again, 20 bytes for each 4 KiB.
"""

from __future__ import annotations

import os

MEBIBYTE = 1 << 20
FOR_THE_NODE = MEBIBYTE
FOR_A_PARTITION = 5 * 4096
INDEXED_SHARE = 4096 // 20


def room_for_start(folder: str) -> int:
    needed = FOR_THE_NODE
    with os.scandir(folder) as entries:
        folders = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    for path in folders:
        with os.scandir(path) as files:
            sizes = [file.stat().st_size for file in files if file.name.endswith(".log")]
        # At most the last segment is read again; earlier ones were flushed when it began.
        needed += FOR_A_PARTITION + max(sizes, default=0) // INDEXED_SHARE
    return needed
