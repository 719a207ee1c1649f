"""The page: one HTML file with its own style and nothing from anywhere else. Pure.

Light and dark follow the reader. It has no script, and its policy forbids scripts to the browser:
contents of records are text here, and stay text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from headrace.pipelines.report.parts import Section

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
:root { color-scheme: light dark;
  --ground: #f5f7f8; --surface: #ffffff; --text: #17212b; --muted: #55626f; --line: #dfe5ea;
  --c1: #0a6785; --c2: #b3541e; --c3: #5b3f9c; --c4: #17693f; --c5: #a8235f; --c6: #7a5b00;
}
@media (prefers-color-scheme: dark) { :root {
  --ground: #0e1317; --surface: #151c22; --text: #e4eaef; --muted: #9dabb7; --line: #26313a;
  --c1: #63c1df; --c2: #f0a070; --c3: #b7a3f2; --c4: #6fcf97; --c5: #f591bd; --c6: #e0c060;
} }
*, ::before, ::after { box-sizing: border-box; }
html { background: var(--ground); color: var(--text);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Noto Sans", "DejaVu Sans", sans-serif; }
body { margin: 0 auto; max-width: 72rem; padding: 1.6rem 1.2rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0; }
h2 { font-size: 1.05rem; margin: 0 0 .3rem; }
p { margin: .3rem 0; } .quiet { color: var(--muted); }
section { background: var(--surface); border: 1px solid var(--line); border-radius: 10px;
  padding: 1rem 1.2rem; margin: 1.1rem 0; }
dl { display: flex; flex-wrap: wrap; gap: .4rem 2.4rem; margin: 1rem 0 0; }
dl div { display: flex; flex-direction: column-reverse; }
dt { color: var(--muted); font-size: .86rem; }
dd { margin: 0; font-size: 1.4rem; font-variant-numeric: tabular-nums; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .3rem 0;
  padding: 0; font-size: .86rem; overflow-wrap: anywhere; }
.legend i { display: inline-block; width: .8rem; height: .8rem; border-radius: 3px;
  margin-right: .4rem; vertical-align: -.05rem; }
.chart { display: grid; grid-template-columns: auto minmax(0, 1fr); gap: 0 .7rem;
  margin: .8rem 0; }
.scale { display: flex; flex-direction: column; justify-content: space-between; height: 10rem;
  font-size: .78rem; line-height: 1; color: var(--muted); text-align: right;
  font-variant-numeric: tabular-nums; }
svg.plot { width: 100%; height: 10rem; display: block; overflow: visible; }
svg.bar { width: 100%; min-width: 6rem; height: .7rem; display: block; }
.grid { stroke: var(--line); stroke-width: 1; vector-effect: non-scaling-stroke; }
.stroke { fill: none; stroke-width: 1.8; vector-effect: non-scaling-stroke;
  stroke-linejoin: round; }
.axis { grid-column: 2; display: flex; justify-content: space-between; margin-top: .45rem;
  font-size: .78rem; color: var(--muted); font-variant-numeric: tabular-nums; }
.scroll { overflow: auto; } details .scroll { max-height: 24rem; }
table { border-collapse: collapse; font-size: .88rem; width: 100%; }
th, td { text-align: left; padding: .25rem .9rem .25rem 0; border-bottom: 1px solid var(--line);
  vertical-align: top; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
th { color: var(--muted); font-weight: 500; }
td.bars { width: 30%; vertical-align: middle; }
summary { cursor: pointer; color: var(--muted); font-size: .88rem; }
footer { color: var(--muted); font-size: .84rem; }
""" + "".join(
    f".stroke.c{n} {{ stroke: var(--c{n}); }} .fill.c{n} {{ fill: var(--c{n}); }} "
    f"i.c{n} {{ background: var(--c{n}); }}\n"
    for n in range(1, 7)
)


@dataclass(slots=True, kw_only=True)
class Page:
    title: str
    said: str  # below the title: which table, which day
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    foot: str

    def html(self) -> str:
        facts = "".join(
            f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>"
            for name, value in self.facts
        )
        drawn = "\n".join(_section(one) for one in self.sections)
        return (
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
            f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
            f"<title>{escape(self.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
            f'<header><h1>{escape(self.title)}</h1><p class="quiet">{escape(self.said)}</p>'
            f"{f'<dl>{facts}</dl>' if facts else ''}</header>\n"
            f"<main>\n{drawn}\n</main>\n<footer><p>{escape(self.foot)}</p></footer>\n"
            "</body>\n</html>\n"
        )


def _section(one: Section) -> str:
    said = f'<p class="quiet">{escape(one.said)}</p>' if one.said else ""
    table = _table(one)
    if not one.open:
        table = f"<details><summary>As numbers</summary>{table}</details>"
    return f"<section><h2>{escape(one.title)}</h2>{said}{one.chart}{table}</section>"


def _table(one: Section) -> str:
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in one.headings)
    body = "".join(f"<tr>{_cells(row, one.open)}</tr>" for row in one.rows)
    label = escape(f"{one.title} as numbers")
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _cells(row: Sequence[str], ranked: bool) -> str:
    """Returns the cells of one row. In a ranking the second cell is its bar, drawn by us."""
    if not ranked:
        return "".join(f"<td>{escape(cell)}</td>" for cell in row)
    name, bar, *others = row
    rest = "".join(f"<td>{escape(cell)}</td>" for cell in others)
    return f'<td>{escape(name)}</td><td class="bars">{bar}</td>{rest}'
