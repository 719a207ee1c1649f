"""The lock of a data folder: it keeps other processes out."""

import subprocess
import sys

from headrace.node.process.folders.real_disk import FolderInUse, FolderLock

OTHER_PROCESS = """
import sys
from headrace.node.process.folders.real_disk import FolderInUse, FolderLock
try:
    FolderLock(sys.argv[1])
except FolderInUse:
    sys.exit(3)
"""


def test_a_folder_has_one_process(tmp_path):
    def other():
        return subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(tmp_path)]).returncode

    lock = FolderLock(str(tmp_path))
    assert (tmp_path / ".lock").exists()
    assert other() == 3
    lock.release()
    lock.release()
    assert other() == 0
    assert issubclass(FolderInUse, Exception)
