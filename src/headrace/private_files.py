"""Files that only the user who runs a process may read: their modes, and the folder for state.

Our files hold records, passwords and what people did. A process that writes such files calls
`keep_new_files_private` when it starts, which also covers the files that libraries make for it.
Code that runs inside another program's process makes its folders with `FOLDER_MODE` instead.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

log = logging.getLogger(__name__)

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OTHERS = 0o077  # the bits of everybody else


def keep_new_files_private() -> None:
    """From now on only the user can read files and folders that this process or its children
    make."""
    os.umask(OTHERS)


def private_folder(folder: Path) -> Path:
    """Make the folder if it is missing, and remove the rights of others to it."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if folder.stat().st_mode & OTHERS:
        try:
            folder.chmod(FOLDER_MODE)
        except OSError as problem:
            log.warning("others may read %s: chmod 700 failed: %s", folder, problem.strerror)
    return folder


def write_private(path: Path, text: str) -> None:
    """Replace the file by one with this text. The file is never visible with other rights or half
    written."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "w") as file:
        file.write(text)
    new.replace(path)


def state_folder() -> Path | None:
    """Where this user's programs keep state; None if the user has no home folder."""
    try:
        base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    except RuntimeError:
        return None
    return Path(base) / "headrace"
