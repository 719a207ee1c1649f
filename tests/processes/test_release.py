"""A release is made as a whole: where git refuses a step, the tree is as it was."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import release.__main__ as command
from release import changelog
from release.changelog import Unfit


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with all that a release changes."""
    folder = tmp_path / "project"
    for name, text in {
        "pyproject.toml": 'version = "0.1.0"\n',
        "src/headrace/__init__.py": '__version__ = "0.1.0"\n',
        "CHANGELOG.md": changelog.HEAD,
        "changelog.d/README.md": "How to write them.\n",
        "changelog.d/tea.added.md": "Tea.\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for name in ("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"):
        monkeypatch.setenv(name, "Tea Maker")
    for name in ("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"):
        monkeypatch.setenv(name, "tea@example.com")
    # Nothing of the person's own settings, as to sign what is committed.
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    built = tmp_path / "tea.whl"
    built.write_text("a wheel")
    monkeypatch.setattr(command, "PROJECT", folder)
    monkeypatch.setattr(command, "build_and_check", lambda copy, version: (built,))
    monkeypatch.setattr(changelog, "DOCUMENT", folder / "CHANGELOG.md")
    monkeypatch.setattr(changelog, "FRAGMENTS", folder / "changelog.d")
    return folder


def test_a_release_is_a_commit_and_a_tag(project: Path) -> None:
    command.make("1.0.0", dry=False)
    assert git(project, "tag", "--list").split() == ["v1.0.0"]
    assert git(project, "status", "--porcelain").split() == ["??", "dist/"]
    assert (project / "dist" / "tea.whl").exists()
    assert not (project / "changelog.d" / "tea.added.md").exists()
    assert "## 1.0.0 (" in (project / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("refused", ["commit", "tag"])
def test_where_git_refuses_nothing_has_changed(project: Path, refused: str) -> None:
    before = git(project, "rev-parse", "HEAD")
    if refused == "commit":
        hook = project / ".git" / "hooks" / "pre-commit"
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)
    else:
        git(project, "config", "tag.gpgSign", "true")
        git(project, "config", "gpg.program", "false")
    with pytest.raises(Unfit):
        command.make("1.0.0", dry=False)
    assert git(project, "status", "--porcelain") == ""
    assert git(project, "rev-parse", "HEAD") == before
    assert git(project, "tag", "--list") == ""
    assert (project / "changelog.d" / "tea.added.md").read_text() == "Tea.\n"
    assert not (project / "dist").exists()


def test_a_dry_run_changes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.make("1.0.0", dry=True)
    assert git(project, "status", "--porcelain") == ""
    assert "- Tea." in capsys.readouterr().out
