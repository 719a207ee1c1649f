"""One flipped bit in the metadata or in the root of a data folder never loses anything silently."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.bit_flips import REFUSED, WRONG, build, walk


@pytest.mark.parametrize(
    ("clean", "snapshot"),
    [
        pytest.param(False, True, id="killed-with snapshots"),
        pytest.param(True, False, id="stopped-young"),
        pytest.param(False, False, id="killed-young", marks=pytest.mark.full),
        pytest.param(True, True, id="stopped-with snapshots", marks=pytest.mark.full),
    ],
)
def test_a_start_serves_all_or_is_refused_with_a_sentence(
    tmp_path: Path, clean: bool, snapshot: bool
) -> None:
    state = build(tmp_path, snapshot=snapshot, clean=clean)
    verdicts = list(walk(state, tmp_path, step=97))
    assert [verdict for verdict in verdicts if verdict[2] == WRONG] == []
    refused = [words for _, _, ended, words in verdicts if ended == REFUSED]
    assert refused and all("headrace segment check" in words for words in refused)
