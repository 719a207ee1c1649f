"""Every story of whole nodes in this folder comes true."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.transcripts.clusters.cluster_story import tell

STORIES = sorted(Path(__file__).parent.glob("*.txt"))


@pytest.mark.parametrize("story", STORIES, ids=lambda path: path.stem)
def test_story(story: Path) -> None:
    tell(story)
