"""Tables of text cells, rendered as Markdown, LaTeX and CSV by the templates beside this file."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from jinja2 import Environment, PackageLoader

from channelhash.utils.files import write_text


@dataclass(frozen=True)
class Cell:
    """Text of a cell; bold marks the best.

    >>> Cell("84.19", bold=True)
    Cell(text='84.19', bold=True)
    """

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A table of text. Consecutive rows with the same first cell are a block, which is named once.

    Attributes:
        name: stem of its files and its LaTeX label: letters, digits, ``-`` and ``_``.
        title: what is compared, one line.
        header: a text per column.
        rows: each as long as ``header``.
        caption: how to read it, and what is missing in it.
        labels: how many of the first columns name the row; the others hold numbers, flush right.

    Raises:
        ValueError: a row has another length than ``header``, or ``name`` has other characters.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str
    labels: int = 2

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[\w-]+", self.name, re.ASCII):
            raise ValueError(f"table name {self.name!r}: letters, digits, - and _ only")
        for number, row in enumerate(self.rows):
            if len(row) != len(self.header):
                raise ValueError(f"row {number} has {len(row)} cells, the header {len(self.header)}")

    @property
    def has_blocks(self) -> bool:
        """Whether some block has more than one row; a list of rows needs no rules between them."""
        return len(self.blocks()) < len(self.rows)

    def blocks(self) -> list[list[tuple[Cell, ...]]]:
        """Split the rows where the first cell changes.

        >>> a, b = (Cell("a"), Cell("1")), (Cell("b"), Cell("2"))
        >>> [len(block) for block in Table("t", "Title", ("", "n"), (a, a, b), "").blocks()]
        [2, 1]
        """
        return [list(rows) for _, rows in groupby(self.rows, key=lambda row: row[0])]


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write each table to ``folder`` as ``NAME.md``, ``.tex`` and ``.csv``; return the files.

    Raises:
        ValueError: two tables have one name.
    """
    names = [table.name for table in tables]
    if len(set(names)) < len(names):
        raise ValueError(f"two tables have one name among {', '.join(names)}")
    formats = {"md": to_markdown, "tex": to_latex, "csv": to_csv}
    texts = {folder / f"{table.name}.{ending}": render(table) for table in tables for ending, render in formats.items()}
    for path, text in texts.items():
        write_text(path, text)
    return list(texts)


def to_markdown(table: Table) -> str:
    """Render GitHub's Markdown: title, table, caption; the name of a block stands in its first row.

    >>> print(to_markdown(Table("t", "mAP by loss", ("Loss", "mAP"), ((Cell("SCH"), Cell("83.7", bold=True)),), "", 1)))
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
    r"""Render a ``table`` float in booktabs style; needs ``\usepackage{booktabs}``, and UTF-8 beyond ASCII.

    >>> to_latex(Table("t", "mAP", ("Loss", "γ_w"), ((Cell("SCH"), Cell("50 %")),), "", 1)).splitlines()[6:9]
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
    writer.writerows([cell.text for cell in row] for row in table.rows)
    return target.getvalue()


def _markdown(text: str) -> str:
    """On one line, signs of Markdown escaped; an underscore between letters means nothing there."""
    one_line = " ".join(text.split())
    return re.sub(r"([\\|*`<>\[\]#~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", one_line)


_LATEX_SIGNS = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    # After a row's \\ these would be read as its arguments.
    "[": "{[}",
    "*": "{*}",
    "±": r"$\pm$",
    "→": r"$\to$",
    "−": r"$-$",
    "×": r"$\times$",
    "≤": r"$\le$",
    "∖": r"$\setminus$",
    "√": r"$\surd$",
    "²": r"\textsuperscript{2}",
    "–": "--",
    "…": r"\ldots{}",
}
_GREEK = {"γ": r"\gamma", "κ": r"\kappa", "λ": r"\lambda", "τ": r"\tau", "ψ": r"\psi", "α": r"\alpha", "β": r"\beta"}
_LATEX_SIGNS |= {letter: f"${command}$" for letter, command in _GREEK.items()}
_SYMBOL = re.compile(rf"(?P<base>mAP|[{''.join(_GREEK)}])_(?P<index>\w+)|.", re.ASCII)


def _latex(text: str) -> str:
    """On one line, LaTeX's signs escaped, symbols as mathematics; indices such as the w of γ_w are set as such."""

    def sign(match: re.Match[str]) -> str:
        if match["base"]:
            base = _GREEK.get(match["base"], rf"\mathrm{{{match['base']}}}")
            index = match["index"].replace("_", r"\_")
            return rf"${base}_{{{index}}}$"
        return _LATEX_SIGNS.get(match[0], match[0])

    return _SYMBOL.sub(sign, " ".join(text.split()))


_TEMPLATES = Environment(loader=PackageLoader(__package__, "."), trim_blocks=True, keep_trailing_newline=True)
_TEMPLATES.filters |= {"md": _markdown, "tex": _latex}
