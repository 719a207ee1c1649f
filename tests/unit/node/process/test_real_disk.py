"""The machine's disk: whole writes or none, reads to the end, locks that keep others out."""

import os

import pytest

from headrace.node.process.folders.real_disk import RealDisk


@pytest.fixture
def disk():
    return RealDisk()


def test_appends_and_reads(disk, tmp_path):
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"hello")
    file.append_all([b" ", b"world"])
    file.append(memoryview(bytearray(b"!")))
    assert file.size == 12
    assert file.read(5, 6) == b"world"
    assert file.read(100, 6) == b"world!"
    assert file.read(10, 50) == b""
    again = disk.open(f"{tmp_path}/a")
    assert again.size == 12
    again.append(b"?")
    assert (tmp_path / "a").read_bytes() == b"hello world!?"


def test_an_append_goes_behind_the_end_also_after_a_cut(disk, tmp_path):
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"0123456789")
    file.resize(4)
    file.append(b"x")
    assert (tmp_path / "a").read_bytes() == b"0123x"
    file.write_at(b"AB", 1)
    file.write_at(b"Z", 7)
    assert (tmp_path / "a").read_bytes() == b"0AB3x\0\0Z" and file.size == 8


def test_short_writes_go_on(disk, tmp_path, monkeypatch):
    file = disk.open(f"{tmp_path}/a", create=True)
    write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: write(fd, data[:3], at))
    file.append(b"0123456789")
    file.append_all([b"abc", b"defg"])
    file.write_at(b"XYZW", 2)
    assert (tmp_path / "a").read_bytes() == b"01XYZW6789abcdefg" and file.size == 17


def test_many_pieces_go_to_the_file_without_being_joined(disk, tmp_path, monkeypatch):
    file = disk.open(f"{tmp_path}/a", create=True)
    pieces = [bytes([number]) * 9_000 for number in range(3)]
    file.append_all([b"x", memoryview(pieces[0]), *pieces[1:]])
    write = os.pwritev
    monkeypatch.setattr(os, "pwritev", lambda fd, data, at: write(fd, data[:2], at))
    file.append_all(pieces)
    few = [b"y" * 20] * 2_000
    file.append_all(few)
    expected = b"x" + b"".join(pieces * 2 + few)
    assert (tmp_path / "a").read_bytes() == expected and file.size == len(expected)


def test_a_disk_that_fills_up_in_the_middle_leaves_no_trace(disk, tmp_path, monkeypatch):
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"before")
    write = os.pwrite

    def nearly_full(fd, data, at):
        if at > 6:
            raise OSError(28, "No space left on device")
        return write(fd, data[:4], at)

    monkeypatch.setattr(os, "pwrite", nearly_full)
    with pytest.raises(OSError):
        file.append(b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"before" and file.size == 6


def test_short_reads_go_on(disk, tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"0123456789")
    file = disk.open(f"{tmp_path}/a")
    read = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: read(fd, min(length, 3), at))
    assert file.read(8, 1) == b"12345678"
    assert file.read(80, 1) == b"123456789"


def test_a_file_that_nobody_holds_is_closed(disk, tmp_path):
    file = disk.open(f"{tmp_path}/a", create=True)
    fd = file.fileno()
    holder = [file]
    del file
    os.fstat(fd)
    holder.clear()
    with pytest.raises(OSError):
        os.fstat(fd)


def test_close_is_final_and_harmless_twice(disk, tmp_path):
    file = disk.open(f"{tmp_path}/a", create=True)
    file.close()
    file.close()
    with pytest.raises(OSError):
        file.append(b"x")


def test_descriptors_are_not_inherited(disk, tmp_path):
    file = disk.open(f"{tmp_path}/a", create=True)
    assert not os.get_inheritable(file.fileno())


def test_a_missing_file_is_not_made_by_accident(disk, tmp_path):
    with pytest.raises(FileNotFoundError):
        disk.open(f"{tmp_path}/a")


def test_folders(disk, tmp_path):
    disk.make_folder(f"{tmp_path}/a/b")
    disk.make_folder(f"{tmp_path}/a/b")
    disk.write_file(f"{tmp_path}/a/x", [b"1", b"2"])
    disk.write_file(f"{tmp_path}/a/x", [b"3"], flush=False)
    assert disk.read_file(f"{tmp_path}/a/x") == b"3"
    assert disk.list(f"{tmp_path}/a") == ["b", "x"]
    assert disk.list(f"{tmp_path}/nowhere") == disk.list(f"{tmp_path}/a/x") == []
    assert disk.size(f"{tmp_path}/a/x") == 1
    disk.flush_folder(f"{tmp_path}/a")
    disk.rename(f"{tmp_path}/a", f"{tmp_path}/c")
    disk.remove(f"{tmp_path}/c/x")
    disk.remove(f"{tmp_path}/c/x")
    assert disk.exists(f"{tmp_path}/c/b") and not disk.exists(f"{tmp_path}/a")
    disk.remove_folder(f"{tmp_path}/c")
    disk.remove_folder(f"{tmp_path}/c")
    assert disk.list(str(tmp_path)) == []


def test_a_failed_replacement_leaves_the_old_file(disk, tmp_path):
    disk.write_file(f"{tmp_path}/x", [b"old"])

    def pieces():
        yield b"half"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError):
        disk.write_file(f"{tmp_path}/x", pieces())
    assert disk.read_file(f"{tmp_path}/x") == b"old"


def test_a_file_stays_open_over_rename_and_removal(disk, tmp_path):
    file = disk.open(f"{tmp_path}/a", create=True)
    file.append(b"data")
    disk.rename(f"{tmp_path}/a", f"{tmp_path}/a.deleted")
    disk.remove(f"{tmp_path}/a.deleted")
    assert file.read(4, 0) == b"data"
    file.flush()


def test_a_whole_file_that_cannot_be_written_is_named(disk, tmp_path):
    """By the name one can tell whose disk is full or broken; the system call names none."""
    (tmp_path / "a.tmp").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as refusal:
        disk.write_file(f"{tmp_path}/a", [b"text"])
    assert refusal.value.filename == f"{tmp_path}/a"
