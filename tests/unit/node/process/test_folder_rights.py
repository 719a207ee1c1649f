"""A data folder that others could read is closed when a node starts, and a shared one is not."""

import stat
from pathlib import Path

import pytest

from headrace.node.process.folders.folder_rights import close_to_others


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def open_folder(path: Path) -> Path:
    for folder in (path, path / "__cluster_metadata-0", path / "orders-0"):
        folder.mkdir()
        folder.chmod(0o755)
    (path / "meta.properties").write_bytes(b"")
    return path


def test_the_folder_of_an_older_version_is_closed_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = open_folder(tmp_path / "data")
    close_to_others(str(data))
    assert [mode(p) for p in (data, data / "__cluster_metadata-0", data / "orders-0")] == [
        0o700
    ] * 3
    assert "2 folders" in caplog.text and f"{data} could be read by others" in caplog.text
    caplog.clear()
    close_to_others(str(data))
    assert not caplog.text


def test_a_folder_that_others_use_too_is_left_open_with_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = open_folder(tmp_path / "shared")
    (data / "letters").mkdir()
    (data / "letters").chmod(0o755)
    close_to_others(str(data))
    assert mode(data) == mode(data / "letters") == 0o755
    assert mode(data / "__cluster_metadata-0") == 0o700
    assert f"`chmod 700 {data}` closes it" in caplog.text
