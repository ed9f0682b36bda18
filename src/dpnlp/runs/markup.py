"""HTML that cannot be injected into: what is not made here is text, escaped, and steers no reader."""

import html
import re
from collections.abc import Iterable, Sequence
from functools import partial

from dpnlp.foreign import visible

EMPTY = {"br", "meta"}
"""Elements that have no end tag."""


class Html(str):
    """Markup that stands as it is."""

    __slots__ = ()


def element(tag: str, /, *children: str, **attributes: str) -> Html:
    """`element("p", "1 < 2", class_="note")` is <p class="note">1 &lt; 2</p>; children may be elements themselves."""
    pairs = (
        f' {name.rstrip("_").replace("_", "-")}="{html.escape(visible(value))}"' for name, value in attributes.items()
    )
    opening = f"<{tag}{''.join(pairs)}>"
    return Html(opening if tag in EMPTY else f"{opening}{joined(*children)}</{tag}>")


def joined(*children: str) -> Html:
    """Elements and texts after one another."""
    return Html(
        "".join(child if isinstance(child, Html) else html.escape(visible(child), quote=False) for child in children)
    )


div, paragraph, section = partial(element, "div"), partial(element, "p"), partial(element, "section")


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], class_: str, figures_from: int = 99) -> Html:
    """Columns from `figures_from` on hold figures. Cells name their column, for screens too narrow for a heading."""
    kinds: list[dict[str, str]] = [{"class_": "number"} if n >= figures_from else {} for n in range(len(heads))]

    def line(tag: str, cells: Sequence[str]) -> Html:
        columns = zip(cells, heads, kinds, strict=True)
        return element("tr", *(element(tag, cell, data_head=head, **kind) for cell, head, kind in columns))

    body = element("tbody", *(line("td", row) for row in rows))
    return div(element("table", element("thead", line("th", heads)), body, class_=class_), class_="scroll")


def box(text: str) -> Html:
    """Something to copy: one click selects all of it. Lines break between its words, or between parts at a |."""
    pieces = (element("span", piece) for piece in re.findall(r"[^ |]+\|?|[ |]", text) if piece)
    return element("pre", element("code", *pieces))
