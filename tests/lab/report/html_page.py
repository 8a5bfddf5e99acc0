"""A strict reading of a page: every element closed, every address within the page."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "img", "br", "line", "circle", "polyline", "link", "hr", "input"}
ADDRESSES = {"src", "href", "srcset", "poster", "action", "data", "xlink:href", "formaction", "background"}


@dataclass
class ReadPage:
    """What `read_page` found."""

    words: str = ""
    tags: list[str] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    addresses: list[str] = field(default_factory=list)
    images: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.page, self.open = ReadPage(), []

    def handle_starttag(self, tag, attrs):
        self.page.tags.append(tag)
        for name, value in attrs:
            assert not name.startswith("on"), f"<{tag} {name}> is a script"
            if name in ADDRESSES:
                (self.page.images if tag == "img" else self.page.addresses).append(value)
            if name == "id":
                self.page.ids.append(value)
        if tag not in VOID:
            self.open.append((tag, self.getpos()))

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> at {self.getpos()} closes nothing"
        opened, where = self.open.pop()
        assert opened == tag, f"</{tag}> at {self.getpos()}, but <{opened}> of {where} is open"

    def handle_data(self, data):
        if not self.open or self.open[-1][0] not in {"style", "script"}:
            self.page.words += data


def read_page(html: str) -> ReadPage:
    """Read a whole page; AssertionError where it is not well formed, or needs anything but itself."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert not reader.open, f"never closed: {reader.open}"
    page = reader.page
    assert not {"script", "link", "iframe", "object", "embed", "base"} & set(page.tags)
    assert len(set(page.ids)) == len(page.ids)
    assert all(address.startswith("data:image/") for address in page.images), page.images
    assert all(address.startswith("#") and address[1:] in page.ids for address in page.addresses), page.addresses
    style = html[html.index("<style>") : html.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    page.words = " ".join(page.words.split())
    return page
