"""What a start needs grows with the partitions and with what it must read again."""

from pathlib import Path

from headrace.node.process.folders.room_for_start import MEBIBYTE, room_for_start


def test_room_for_a_node_and_for_each_of_its_partitions(tmp_path: Path) -> None:
    assert room_for_start(str(tmp_path)) == MEBIBYTE
    for number in range(100):
        folder = tmp_path / f"orders-{number}"
        folder.mkdir()
        with (folder / "00000000000000000000.log").open("wb") as file:
            file.truncate(MEBIBYTE)  # 256 index entries of 20 bytes
    needed = room_for_start(str(tmp_path)) - MEBIBYTE
    assert 100 * (4096 * 4 + 256 * 20) < needed < 100 * 32_768
