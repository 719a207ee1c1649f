"""Profiles: named clusters with their settings, of which one is in use (`headrace profile`).

They are in `profiles.json` in the user's configuration folder, readable by the user alone because
settings hold passwords. A cluster that the command names itself (--bootstrap, --client-config, or
their variables) wins over the profile in use; a profile named by --profile cannot be combined with
an address.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

from headrace.cli.failure import Failure
from headrace.private_files import private_folder, write_private

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", re.ASCII)
MOST_PROFILES = 1_000


@dataclass(slots=True)
class Profile:
    """One cluster: its bootstrap servers and settings for librdkafka."""

    bootstrap: str | None = None
    settings: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Profiles:
    """All profiles of this user, and the name of the one in use."""

    current: str | None = None
    by_name: dict[str, Profile] = field(default_factory=dict)

    def named(self, name: str) -> Profile:
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name)) or "none yet; make one: headrace profile create"
            raise Failure(f"There is no profile {name}. There are: {known}.")
        return self.by_name[name]


def chosen(name: str | None, *, named: bool) -> Profile:
    """The profile of `--profile`, or the one in use unless the command names a cluster itself."""
    if name is not None:
        if named:
            raise Failure("Give --profile or the address of a cluster, not both.")
        return load().named(name)
    if named:
        return Profile()
    saved = load()
    return Profile() if saved.current is None else saved.named(saved.current)


def require_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise Failure("A profile's name has 1 to 64 letters, digits, dots, - and _.")


def file() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME")
    try:
        return (Path(base) if base else Path.home() / ".config") / "headrace" / "profiles.json"
    except RuntimeError as missing:
        raise Failure("This user has no home folder; set XDG_CONFIG_HOME.") from missing


def load() -> Profiles:
    """No profiles if the file does not exist, or if the user has no home folder."""
    try:
        path = file()
        text = path.read_text("utf-8")
    except (FileNotFoundError, NotADirectoryError, Failure):
        return Profiles()
    except (OSError, UnicodeDecodeError) as problem:
        raise Failure(f"Cannot read {path}: {problem}.") from problem
    try:
        saved = json.loads(text)
        found = {
            str(name): Profile(
                None if of["bootstrap"] is None else str(of["bootstrap"]),
                {str(key): str(value) for key, value in of["settings"].items()},
            )
            for name, of in saved["profiles"].items()
        }
        current = saved["current"]
        return Profiles(current if current in found else None, found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise Failure(f"{path} is not a file of profiles: repair or delete it.") from problem


def save(profiles: Profiles) -> None:
    if len(profiles.by_name) > MOST_PROFILES:
        raise Failure(f"At most {MOST_PROFILES:,} profiles.")
    path = file()
    content = {
        "current": profiles.current,
        "profiles": {name: asdict(each) for name, each in profiles.by_name.items()},
    }
    try:
        private_folder(path.parent)
        write_private(path, json.dumps(content, indent=2) + "\n")
    except OSError as problem:
        raise Failure(f"Cannot write {path}: {problem.strerror}.") from problem
