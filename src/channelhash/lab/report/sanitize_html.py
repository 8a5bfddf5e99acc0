"""Tables that other commands wrote as HTML, made safe to put into a page: only what a table needs comes through."""

from html import escape
from html.parser import HTMLParser

from markupsafe import Markup

_VOID = {"br"}
_TAGS = {"table", "caption", "colgroup", "thead", "tbody", "tfoot", "tr", "th", "td", "b", "strong", "i", "em"}
_TAGS |= {"sub", "sup", "small", "span", "p", "h3", "h4", "ul", "ol", "li", "code"} | _VOID
_ATTRIBUTES = {"class", "scope", "colspan", "rowspan"}
# Content of these elements is dropped.
_SILENT = {"script", "style", "title", "template", "noscript", "svg", "math", "iframe", "object"}


def clean(html: str) -> Markup:
    """Return the tables and words of ``html``, a fragment or a document: scripts, styles, other elements and other
    attributes are left out, and every element is closed.

    >>> clean('<td onclick="x()">1<script>x()</script>')
    Markup('<td>1</td>')
    """
    reader = _Cleaner()
    reader.feed(html)
    reader.close()
    reader.close_down_to(0)
    return Markup("".join(reader.parts))  # of tags listed above and escaped text


class _Cleaner(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self.open: list[str] = []
        self.silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self.silent.append(tag)
        if self.silent or tag not in _TAGS:
            return
        attributes = "".join(f' {name}="{escape(value or "")}"' for name, value in attrs if name in _ATTRIBUTES)
        self.parts.append(f"<{tag}{attributes}>")
        if tag not in _VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.silent:
            del self.silent[self.silent.index(tag) :]
        elif not self.silent and tag in self.open:
            self.close_down_to(len(self.open) - 1 - self.open[::-1].index(tag))

    def handle_data(self, data: str) -> None:
        if not self.silent:
            self.parts.append(escape(data))

    def close_down_to(self, depth: int) -> None:
        """Close the innermost elements until ``depth`` are open."""
        while len(self.open) > depth:
            self.parts.append(f"</{self.open.pop()}>")
