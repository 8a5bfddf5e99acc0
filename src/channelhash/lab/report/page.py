"""The parts of a page, and its template. All text is escaped."""

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined

from channelhash.lab.report.chart import Chart

_NUMBER = re.compile(r"[-−+]?[\d,.]+( %)?|–")
_NOT_IN_AN_ID = re.compile(r"[^a-z0-9]+")


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Listing:
    """Lines to copy, or a file as it is."""

    text: str
    kind: ClassVar[str] = "listing"


@dataclass(frozen=True)
class Table:
    """Rows as long as the header; the first column names the rows."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    kind: ClassVar[str] = "table"

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds only numbers (or dashes), which are flush right.

        >>> Table(["run", "mAP"], [("a", "50.0"), ("b", "–")]).numeric
        [False, True]
        """
        columns = [[row[i] for row in self.rows] for i in range(len(self.header))]
        return [all(_NUMBER.fullmatch(cell) for cell in column) and set(column) != {"–"} for column in columns]


@dataclass(frozen=True)
class Plot:
    """An image within the page; ``uri`` as `data_uri` returns it."""

    uri: str
    caption: str
    kind: ClassVar[str] = "plot"


@dataclass(frozen=True)
class Charts:
    """Charts side by side."""

    charts: Sequence[Chart]
    kind: ClassVar[str] = "charts"


@dataclass(frozen=True)
class Card:
    """A query or an item that it found.

    Attributes:
        heading: "query", or the distance.
        uri: its image; empty without one.
        text: its words; empty without them.
        detail: a line in small print: labels, id.
        right: whether the item is relevant; None for a query and where that is unknown.
    """

    heading: str
    uri: str
    text: str
    detail: str
    right: bool | None = None


@dataclass(frozen=True)
class Answers:
    """Queries, each with the items that it found: one row of cards a query."""

    caption: str
    rows: Sequence[Sequence[Card]]
    kind: ClassVar[str] = "answers"


@dataclass(frozen=True)
class Folded:
    """Blocks that are folded away until a reader opens them."""

    summary: str
    blocks: "Sequence[Block]"
    kind: ClassVar[str] = "folded"


Block = Text | Listing | Table | Plot | Charts | Answers | Folded


@dataclass(frozen=True)
class Section:
    """A heading, which the table of contents names, and what is below it."""

    title: str
    blocks: Sequence[Block]

    @property
    def anchor(self) -> str:
        """The section's id in the page.

        >>> Section("Code health", []).anchor
        'code-health'
        """
        return _NOT_IN_AN_ID.sub("-", self.title.lower()).strip("-")


@dataclass(frozen=True)
class Page:
    """A report.

    Attributes:
        title: name of the run or grid.
        subtitle: in one line.
        notes: what a reader must know first: what is missing, what failed.
        facts: (name, value): the few numbers that most readers look for.
        sections: the rest; those without blocks are left out.
        verdict: how good it is, in a sentence.
        at_chance: the verdict is bad news.
    """

    title: str
    subtitle: str
    notes: Sequence[str]
    facts: Sequence[tuple[str, str]]
    sections: Sequence[Section]
    verdict: str = ""
    at_chance: bool = False


def render(page: Page) -> str:
    r"""Render the page as one HTML document; half a character (a lone surrogate), which JSON can hold, becomes "?".

    >>> "<h1>a?</h1>" in render(Page("a\ud800", "", [], [], []))
    True
    >>> "<h1>a &amp; b</h1>" in render(Page("a & b", "", [], [], []))
    True
    """
    templates = Environment(
        loader=PackageLoader("channelhash.lab.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [section for section in page.sections if section.blocks]
    html = templates.get_template("page.html.j2").render(page=page, sections=sections)
    return html.encode("utf-8", "replace").decode()


def data_uri(content: bytes, media_type: str) -> str:
    """Return an address that holds ``content``.

    >>> data_uri(b"abc", "image/png")
    'data:image/png;base64,YWJj'
    """
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def plots_in(folder: Path) -> list[Plot]:
    """Read the PNG files of a folder, by name; none if the folder is missing."""
    return [
        Plot(data_uri(path.read_bytes(), "image/png"), path.stem.replace("-", " ").replace("_", " "))
        for path in sorted(folder.glob("*.png"))
    ]
