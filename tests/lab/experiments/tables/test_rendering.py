"""Every format holds the same cells, is well formed, and nothing in a cell can break it."""

import csv
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channelhash.lab.experiments.rendering import (
    Cell,
    Table,
    to_csv,
    to_latex,
    to_markdown,
    write_tables,
)

EXAMPLE = Table(
    "losses",
    "Methods by mAP_T",
    ("Task", "Method", "k = 16", "k = 32"),
    (
        (Cell("image → text"), Cell("SCH"), Cell("83.73 ± 0.83"), Cell("85.55 ± 0.23")),
        (Cell("image → text"), Cell("DSCH"), Cell("84.19 ± 0.37", bold=True), Cell("86.49 ± 0.29", bold=True)),
        (Cell("text → image"), Cell("DSCH"), Cell("1 failed"), Cell("74.67")),
    ),
    "Best of 100 % in bold; γ_w & R∖T.",
)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
TABLES = st.integers(2, 4).flatmap(
    lambda width: st.builds(
        Table,
        st.just("t-1"),
        TEXTS,
        st.tuples(*[TEXTS] * width),
        st.lists(st.tuples(*[st.builds(Cell, TEXTS, st.booleans())] * width), max_size=5).map(tuple),
        TEXTS,
    )
)


def latex_rows(text: str) -> list[list[str]]:
    """Cells between the rules, parted at unescaped ampersands."""
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    lines = [line for line in re.sub(r"\\(top|mid)rule", "\n", body).splitlines() if line.strip()]
    assert all(line.endswith(r" \\") for line in lines)
    return [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in lines]


def test_markdown_reads_as_the_table():
    assert to_markdown(EXAMPLE).splitlines() == [
        "**Methods by mAP_T**",
        "",
        "| Task | Method | k = 16 | k = 32 |",
        "| --- | --- | ---: | ---: |",
        "| image → text | SCH | 83.73 ± 0.83 | 85.55 ± 0.23 |",
        "|  | DSCH | **84.19 ± 0.37** | **86.49 ± 0.29** |",
        "| text → image | DSCH | 1 failed | 74.67 |",
        "",
        "Best of 100 % in bold; γ_w & R∖T.",
    ]


def test_latex_reads_as_the_table():
    assert to_latex(EXAMPLE).splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{Methods by $\mathrm{mAP}_{T}$. Best of 100 \% in bold; $\gamma_{w}$ \& R$\setminus$T.}",
        r"\label{t:losses}",
        r"\begin{tabular}{llrr}",
        r"\toprule",
        r"Task & Method & k = 16 & k = 32 \\",
        r"\midrule",
        r"image $\to$ text & SCH & 83.73 $\pm$ 0.83 & 85.55 $\pm$ 0.23 \\",
        r" & DSCH & {\boldmath\textbf{84.19 $\pm$ 0.37}} & {\boldmath\textbf{86.49 $\pm$ 0.29}} \\",
        r"\midrule",
        r"text $\to$ image & DSCH & 1 failed & 74.67 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]


def test_csv_names_the_block_in_every_row():
    assert list(csv.reader(io.StringIO(to_csv(EXAMPLE)))) == [
        ["Task", "Method", "k = 16", "k = 32"],
        ["image → text", "SCH", "83.73 ± 0.83", "85.55 ± 0.23"],
        ["image → text", "DSCH", "84.19 ± 0.37", "86.49 ± 0.29"],
        ["text → image", "DSCH", "1 failed", "74.67"],
    ]


@given(TABLES)
def test_no_text_breaks_a_format(table):
    assert list(csv.reader(io.StringIO(to_csv(table)))) == [
        list(table.header),
        *([cell.text for cell in row] for row in table.rows),
    ]

    rows = latex_rows(to_latex(table))
    assert [len(row) for row in rows] == [len(table.header)] * (1 + len(table.rows))
    bare = re.sub(r"\\[\\{}&%$#_]", "", to_latex(table))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"(?<!\\)[%#~^]", re.sub(r"\\\\", "", to_latex(table)))

    lines = to_markdown(table).split("\n")
    cells = [re.split(r"(?<!\\)\|", re.sub(r"\\\\", "", line))[1:-1] for line in lines[2 : 4 + len(table.rows)]]
    assert [len(row) for row in cells] == [len(table.header)] * (2 + len(table.rows))
    assert len(lines) == 7 + len(table.rows)


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("mAP_T of R∖T", r"$\mathrm{mAP}_{T}$ of R$\setminus$T"),
        ("κ_q = 0.01, γ", r"$\kappa_{q}$ = 0.01, $\gamma$"),
        ("my_loss {x} \\ 5 %", r"my\_loss \{x\} \textbackslash{} 5 \%"),
        ("two\nlines", "two lines"),
        ("[3] *", "{[}3] {*}"),
    ],
)
def test_symbols_are_set_as_mathematics_and_signs_escaped(text, latex):
    table = Table("t", "", ("", "a"), ((Cell(""), Cell(text)),), "")
    assert latex_rows(to_latex(table))[1][1].strip() == latex


def test_markdown_escapes_what_would_change_the_text():
    table = Table("t", "", ("a|b",), ((Cell("*x* __init__ a_b <i> `c`\nd"),),), "")
    assert to_markdown(table).splitlines()[2:5:2] == [
        r"| a\|b |",
        r"| \*x\* \_\_init\_\_ a_b \<i\> \`c\` d |",
    ]


def test_a_list_of_rows_has_no_rules_between_them():
    rows = tuple((Cell(name), Cell("1")) for name in "abc")
    table = Table("t", "", ("Method", "wins"), rows, "", labels=1)
    assert to_latex(table).count(r"\midrule") == 1
    assert r"\begin{tabular}{lr}" in to_latex(table)
    assert "| --- | ---: |" in to_markdown(table)


def test_three_files_are_written_for_each_table(tmp_path):
    other = Table("wins", "Wins", ("Method",), (), "")
    paths = write_tables([EXAMPLE, other], tmp_path / "tables")
    assert [path.name for path in paths] == [
        f"{name}.{ending}" for name in ("losses", "wins") for ending in ("md", "tex", "csv")
    ]
    assert (tmp_path / "tables" / "losses.md").read_text() == to_markdown(EXAMPLE)
    assert {path.name for path in (tmp_path / "tables").iterdir()} == {path.name for path in paths}


def test_tables_that_cannot_be_written_are_refused(tmp_path):
    with pytest.raises(ValueError, match="row 0 has 1 cells, the header 2"):
        Table("t", "", ("a", "b"), ((Cell("x"),),), "")
    with pytest.raises(ValueError, match="letters, digits"):
        Table("../t", "", ("a",), (), "")
    with pytest.raises(ValueError, match="two tables have one name"):
        write_tables([EXAMPLE, EXAMPLE], tmp_path)
