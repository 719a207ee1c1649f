"""What a guide's author writes is what the walk runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.guides.blocks import blocks_of

PAGE = """
# A page

```sh
headrace topics create a
```

<!-- guide: until "ready" -->
```console
$ headrace start
ready
$ headrace produce a \\
    --delay 10s
TOPIC  DUE IN
a      10s
```

- in a list

  <!-- guide: file a/b.py -->
  ```python
  if True:
      pass
  ```

<!-- guide: kill the node -->

More text.

<!-- guide: fails -->
```sh
false
```
"""


def page(tmp_path: Path, text: str) -> Path:
    (tmp_path / "page.md").write_text(text)
    return tmp_path / "page.md"


def test_blocks_come_in_order_with_their_notes(tmp_path: Path) -> None:
    found = blocks_of(page(tmp_path, PAGE), "page.md")
    assert [(block.language, block.note) for block in found] == [
        ("sh", ""),
        ("console", 'until "ready"'),
        ("python", "file a/b.py"),
        ("", "kill the node"),
        ("sh", "fails"),
    ]
    assert found[0].place == "page.md:4"
    assert found[2].body == "if True:\n    pass\n"


def test_a_console_has_commands_and_tables(tmp_path: Path) -> None:
    console = blocks_of(page(tmp_path, PAGE), "page.md")[1]
    assert console.commands() == ["headrace start", "headrace produce a \\\n    --delay 10s"]
    assert console.headings() == [["TOPIC", "DUE", "IN"]]


def test_a_note_before_no_block_is_not_passed_over(tmp_path: Path) -> None:
    lost = page(tmp_path, "<!-- guide: fails -->\nText.\n\n```sh\ntrue\n```\n")
    with pytest.raises(AssertionError, match="1 notes stand before no block"):
        blocks_of(lost, "page.md")
