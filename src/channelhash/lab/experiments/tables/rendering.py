"""A table as text cells, and as Markdown, LaTeX, CSV and HTML."""

import csv
import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from channelhash.utils.files import write_text


@dataclass(frozen=True)
class Cell:
    """What stands in a cell; bold marks the best."""

    text: str
    bold: bool = False


@dataclass(frozen=True)
class Table:
    """A table of text. Rows whose first cell is the same, one after another, are a block: it is written once.

    Attributes:
        name: stem of its files and its LaTeX label: letters, digits, ``-`` and ``_``.
        title: what is compared, one line.
        header: a text per column.
        rows: each as long as ``header``.
        caption: how to read it, and what is missing in it.
        labels: how many of the first columns name the row; the others are numbers, flush right.

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
        """The rows, parted where the first cell changes."""
        return [list(rows) for _, rows in groupby(self.rows, key=lambda row: row[0])]


def write_tables(tables: Sequence[Table], folder: Path) -> list[Path]:
    """Write each table to ``folder`` as ``NAME.md``, ``.tex``, ``.csv`` and ``.html``; returns the files.

    Raises:
        ValueError: two tables have one name.
    """
    names = [table.name for table in tables]
    if len(set(names)) < len(names):
        raise ValueError(f"two tables have one name among {', '.join(names)}")
    written = []
    for table in tables:
        texts = {"md": to_markdown(table), "tex": to_latex(table), "csv": to_csv(table), "html": html_page(table)}
        for ending, text in texts.items():
            path = folder / f"{table.name}.{ending}"
            write_text(path, text)
            written.append(path)
    return written


def to_markdown(table: Table) -> str:
    """GitHub's Markdown: title, table, caption; the name of a block stands in its first row."""
    lines = [f"**{_markdown(table.title)}**", "", _markdown_row([_markdown(text) for text in table.header])]
    lines.append(_markdown_row([*["---"] * table.labels, *["---:"] * (len(table.header) - table.labels)]))
    for block in table.blocks():
        for number, row in enumerate(block):
            texts = [f"**{_markdown(cell.text)}**" if cell.bold else _markdown(cell.text) for cell in row]
            lines.append(_markdown_row(["" if number else texts[0], *texts[1:]]))
    return "\n".join([*lines, "", _markdown(table.caption), ""])


def _markdown_row(texts: Sequence[str]) -> str:
    return f"| {' | '.join(texts)} |"


def _markdown(text: str) -> str:
    """On one line, signs of Markdown escaped; an underscore between letters means nothing there."""
    one_line = " ".join(text.split())
    return re.sub(r"([\\|*`<>\[\]#~]|(?<![^\W_])_|_(?![^\W_]))", r"\\\1", one_line)


def to_latex(table: Table) -> str:
    r"""A ``table`` float in booktabs style; wants ``\usepackage{booktabs}``, and UTF-8 for letters beyond ASCII."""
    rules = ("\\midrule\n" if table.has_blocks else "").join(
        "".join(
            _latex_row(["" if number else _latex_cell(row[0]), *map(_latex_cell, row[1:])]) for number, row in lines
        )
        for lines in map(enumerate, table.blocks())
    )
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_latex(table.title)}. {_latex(table.caption)}}}",
            rf"\label{{t:{table.name}}}",
            rf"\begin{{tabular}}{{{'l' * table.labels}{'r' * (len(table.header) - table.labels)}}}",
            r"\toprule",
            f"{_latex_row([_latex(text) for text in table.header])}\\midrule",
            rf"{rules}\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _latex_row(texts: Sequence[str]) -> str:
    return f"{' & '.join(texts)} \\\\\n"


def _latex_cell(cell: Cell) -> str:
    # The sign ± is mathematics, which \textbf leaves thin: \boldmath reaches it.
    return rf"{{\boldmath\textbf{{{_latex(cell.text)}}}}}" if cell.bold else _latex(cell.text)


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


def to_csv(table: Table) -> str:
    """The cells as they are printed, one line a row, the name of a block in every row; no title and no caption."""
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(table.header)
    writer.writerows([cell.text for cell in row] for row in table.rows)
    return target.getvalue()


def to_html(table: Table) -> str:
    """A ``<table>`` element with its title as caption, then a paragraph; everything escaped."""
    names = "".join(
        f'<th scope="col" class="{kind}">{html.escape(text)}</th>'
        for text, kind in zip(table.header, ["label"] * table.labels + ["value"] * len(table.header), strict=False)
    )
    blocks = ' class="blocks"' if table.has_blocks else ""
    lines = [f'<table id="{table.name}"{blocks}>', f"<caption>{html.escape(table.title)}</caption>"]
    lines.append(f"<thead><tr>{names}</tr></thead>")
    for block in table.blocks():
        lines.append("<tbody>")
        for number, row in enumerate(block):
            first = "" if number else f'<th scope="rowgroup" rowspan="{len(block)}">{_html_cell(row[0])}</th>'
            names = "".join(f'<th scope="row">{_html_cell(cell)}</th>' for cell in row[1 : table.labels])
            values = "".join(f"<td>{_html_cell(cell)}</td>" for cell in row[table.labels :])
            lines.append(f"<tr>{first}{names}{values}</tr>")
        lines.append("</tbody>")
    return "\n".join([*lines, "</table>", f'<p class="caption">{html.escape(table.caption)}</p>', ""])


def _html_cell(cell: Cell) -> str:
    return f"<strong>{html.escape(cell.text)}</strong>" if cell.bold else html.escape(cell.text)


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em; color: #1a1a1a; }
table { border-collapse: collapse; border-bottom: 2px solid; }
caption { text-align: left; font-weight: 600; margin-bottom: .5em; }
thead { border-top: 2px solid; border-bottom: 1px solid; }
.blocks tbody + tbody { border-top: 1px solid #999; }
th, td { padding: .15em .8em; text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
tbody th, .label { text-align: left; vertical-align: top; font-weight: normal; }
thead th, [scope=rowgroup] { font-weight: 600; }
.caption { max-width: 60em; color: #444; }
"""


def html_page(table: Table) -> str:
    """`to_html` as a page of its own."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{html.escape(table.title)}</title>\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{to_html(table)}</body>\n</html>\n"
    )
