"""Templates to HTML. Everything that is put into a page is escaped: autoescape is on, and no
template marks anything as safe (a test looks).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from headrace.console.views import words

FOLDER = Path(__file__).parent
# Where the pages of each cluster are, if a console shows several: `/c/NAME/`.
CLUSTERS = "/c/"
# An address of ours in an attribute. Text of others is escaped, so it cannot hold such a quote.
_ADDRESS = re.compile(rf'(?<=\s)((?:href|src|action|data-[a-z-]+)=")(?=/)(?!{CLUSTERS})')
ASSETS = FOLDER / "assets"


def link(*path: str, **query: Any) -> str:
    """An address of ours: `link("topics", name, page=2)`. Values that are None or "" are left
    out."""
    said = {name: value for name, value in query.items() if value not in (None, "")}
    address = "/" + "/".join(quote(part, safe="") for part in path)
    return f"{address}?{urlencode(said)}" if said else address


class Renderer:
    def __init__(self, base: str = "") -> None:
        """`base` is the path before all addresses in the pages: "" or `/c/NAME`."""
        self._base = base
        self._templates = Environment(
            loader=FileSystemLoader(FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,  # an update under a running console does not mix two versions
        )
        self._templates.globals.update(link=link, asset=self.asset, zone=words.zone)
        self._templates.filters.update(
            number=words.number,
            size=words.size,
            moment=words.moment,
            iso=words.iso,
            count=words.count,
            rate=words.rate,
            text=words.text,
        )
        self._versions: dict[str, str] = {}

    def render(self, template: str, **model: Any) -> str:
        html = str(self._templates.get_template(template).render(**model, base=self._base))
        return _ADDRESS.sub(rf"\1{self._base}", html) if self._base else html

    def asset(self, name: str) -> str:
        """With a hash of its bytes, so that browsers keep it until it changes."""
        if name not in self._versions:
            digest = hashlib.sha256((ASSETS / name).read_bytes()).hexdigest()
            self._versions[name] = digest[:12]
        return f"/assets/{name}?v={self._versions[name]}"
