"""Tables of text cells, as Markdown, LaTeX and CSV."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment, PackageLoader

from channelhash.utils.files import write_text


class Cell(NamedTuple):
    """Text of a cell; bold marks the best.

    >>> Cell("84.19", bold=True)
    Cell(text='84.19', bold=True)
    """

    text: str
    bold: bool = False


#: A row of a table.
Row = tuple[Cell, ...]


@dataclass(frozen=True)
class Table:
    """A table of text. Consecutive rows with the same first cell are a block, which is named once.

    Attributes:
        name: stem of its files and its LaTeX label.
        title: what is compared, one line.
        header: a text per column.
        rows: each as long as ``header``.
        caption: how to read it, and what is missing in it.
        labels: how many of the first columns name the row; the others hold numbers, flush right.

    Raises:
        ValueError: a row has another length than ``header``.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    caption: str
    labels: int = 2

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise ValueError(
                    f"row {number} has {len(row)} cells, the header {len(self.header)}"
                )

    def blocks(self) -> list[list[Row]]:
        """Split the rows where the first cell changes.

        >>> a, b = (Cell("a"), Cell("1")), (Cell("b"), Cell("2"))
        >>> [len(block) for block in Table("t", "Title", ("", "n"), (a, a, b), "").blocks()]
        [2, 1]
        """
        return [list(rows) for _, rows in groupby(self.rows, key=lambda row: row[0])]


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write each table to ``folder`` as ``NAME.md``, ``.tex`` and ``.csv``; return the files."""
    names = [table.name for table in tables]
    if len(set(names)) < len(names):
        raise ValueError(f"two tables have one name among {', '.join(names)}")
    texts = {}
    for table in tables:
        texts[folder / f"{table.name}.md"] = to_markdown(table)
        texts[folder / f"{table.name}.tex"] = to_latex(table)
        texts[folder / f"{table.name}.csv"] = to_csv(table)
    for path, text in texts.items():
        write_text(path, text)
    return list(texts)


def to_markdown(table: Table) -> str:
    """Render GitHub's Markdown: title, table, caption; the name of a block stands in its first row.

    >>> row = (Cell("SCH"), Cell("83.7", bold=True))
    >>> print(to_markdown(Table("t", "mAP by loss", ("Loss", "mAP"), (row,), "", 1)))
    **mAP by loss**
    <BLANKLINE>
    | Loss | mAP |
    | --- | ---: |
    | SCH | **83.7** |
    <BLANKLINE>
    <BLANKLINE>
    <BLANKLINE>
    """
    return _TEMPLATES.get_template("table.md.j2").render(table=table)


def to_latex(table: Table) -> str:
    r"""Render a ``table`` float in booktabs style; needs ``\usepackage{booktabs}``, and UTF-8
    beyond ASCII.

    >>> table = Table("t", "mAP", ("Loss", "γ_w"), ((Cell("SCH"), Cell("50 %")),), "", 1)
    >>> to_latex(table).splitlines()[6:9]
    ['Loss & $\\gamma_{w}$ \\\\', '\\midrule', 'SCH & 50 \\% \\\\']
    """
    # In LaTeX, {{ is not rare: its template writes << … >>.
    latex = _TEMPLATES.overlay(variable_start_string="<<", variable_end_string=">>")
    return latex.get_template("table.tex.j2").render(table=table)


def to_csv(table: Table) -> str:
    r"""Render the cells, one line a row, the name of a block in every row; no title and no caption.

    >>> to_csv(Table("t", "mAP by loss", ("Loss", "mAP"), ((Cell("SCH"), Cell("83.7")),), ""))
    'Loss,mAP\nSCH,83.7\n'
    """
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(table.header)
    for row in table.rows:
        writer.writerow([cell.text for cell in row])
    return target.getvalue()


def _markdown(text: str) -> str:
    """Return a text on one line with Markdown's signs escaped. An underscore between letters means
    nothing in Markdown, and stays.
    """
    one_line = " ".join(text.split())
    return re.sub(r"([\\|*`<>\[\]#~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", one_line)


#: Greek letters of the losses -> LaTeX.
_GREEK = {
    "γ": r"\gamma",
    "κ": r"\kappa",
    "λ": r"\lambda",
    "τ": r"\tau",
    "ψ": r"\psi",
    "α": r"\alpha",
    "β": r"\beta",
}
#: Signs of mathematics -> LaTeX.
_SIGNS = {
    "±": r"\pm",
    "→": r"\to",
    "−": "-",
    "×": r"\times",
    "≤": r"\le",
    "∖": r"\setminus",
    "√": r"\surd",
}
#: Signs that LaTeX spells out -> what follows ``\text``.
_WORDS = {
    "\\": "backslash",
    "~": "asciitilde",
    "^": "asciicircum",
    "<": "less",
    ">": "greater",
    "|": "bar",
}
#: A sign -> how LaTeX writes it.
_LATEX_SIGNS = {
    **{sign: f"\\{sign}" for sign in "{}&%$#_"},
    **{sign: f"${command}$" for sign, command in (_GREEK | _SIGNS).items()},
    **{sign: rf"\text{name}{{}}" for sign, name in _WORDS.items()},
    # After a row's \\ brackets and stars would be read as its arguments.
    "[": "{[}",
    "*": "{*}",
    '"': "''",
    "–": "--",
    "…": r"\ldots{}",
    "²": r"\textsuperscript{2}",
}
#: A symbol with an index, or any other sign.
_SYMBOL = re.compile(r"(?P<base>mAP|[γκλτψαβ])_(?P<index>\w+)|.", re.ASCII)


def _latex(text: str) -> str:
    """Return a text on one line with LaTeX's signs escaped and symbols as mathematics, their
    indices, such as the w of γ_w, included.
    """

    def sign(match: re.Match[str]) -> str:
        if match["base"]:
            base = _GREEK.get(match["base"], rf"\mathrm{{{match['base']}}}")
            index = match["index"].replace("_", r"\_")
            return rf"${base}_{{{index}}}$"
        return _LATEX_SIGNS.get(match[0], match[0])

    return _SYMBOL.sub(sign, " ".join(text.split()))


_TEMPLATES = Environment(
    loader=PackageLoader(__package__, "."), trim_blocks=True, keep_trailing_newline=True
)
_TEMPLATES.filters |= {"md": _markdown, "tex": _latex}
