"""Links of the project's pages lead to the same place on the site of the docs."""

from __future__ import annotations

import pytest

from release.docs_site import site_uri, with_site_links


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("docs/guide/delay.md", "[a](order.md#x)", "[a](order.md#x)"),
        ("docs/guide/delay.md", "[a](../../examples/a/README.md)", "[a](../examples/a/README.md)"),
        ("docs/index.md", "[a](../CHANGELOG.md)", "[a](CHANGELOG.md)"),
        ("docs/architecture.md", "[a](decisions)", "[a](decisions/README.md)"),
        ("CONTRIBUTING.md", "![a](docs/guide/a.png)", "![a](guide/a.png)"),
        ("docs/index.md", "[![a](guide/a.png)](guide/a.md)", "[![a](guide/a.png)](guide/a.md)"),
        ("docs/index.md", "[a](https://kafka.apache.org/x)", "[a](https://kafka.apache.org/x)"),
        ("docs/index.md", "[a](#below)", "[a](#below)"),
    ],
)
def test_a_link_leads_where_its_target_lies(name: str, text: str, expected: str) -> None:
    assert with_site_links(text, name, site_uri(name)) == expected


def test_code_is_left_as_it_is() -> None:
    code = "```py\nx[0](../y)\n```"
    text = f"[a](../STYLE.md)\n{code}\n[b](../STYLE.md)\n"
    expected = f"[a](STYLE.md)\n{code}\n[b](STYLE.md)\n"
    assert with_site_links(text, "docs/x.md", "x.md") == expected
