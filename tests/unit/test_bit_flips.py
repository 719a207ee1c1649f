"""One flipped bit in the metadata or in the root of a data folder never loses anything silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.bit_flips import REFUSED, WRONG, build, walk


@pytest.mark.parametrize("snapshot", [False, True], ids=["young", "with snapshots"])
@pytest.mark.parametrize("clean", [False, True], ids=["killed", "stopped"])
def test_a_start_serves_all_or_is_refused_with_a_sentence(
    tmp_path: Path, snapshot: bool, clean: bool
) -> None:
    state = build(tmp_path, snapshot=snapshot, clean=clean)
    verdicts = list(walk(state, tmp_path, step=97))
    assert [verdict for verdict in verdicts if verdict[2] == WRONG] == []
    refused = [words for _, _, ended, words in verdicts if ended == REFUSED]
    assert refused and all("headrace segment check" in words for words in refused)
