"""Tables hold the same cells in every format, tables and plots the results' own figures; no missing
run goes unseen.
"""

import csv
import io
import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from channelhash.lab.experiments import tables
from channelhash.lab.experiments.plots import (
    _code_length_plot,
    _gamma_w_plot,
    _training_plot,
    grid_plots,
)
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.tables import all_views, gamma_w_table, losses_table
from channelhash.lab.experiments.text_tables import (
    Cell,
    Table,
    to_csv,
    to_latex,
    to_markdown,
    write_tables,
)
from lab.grids import made_result
from refusals import check_refusal

EXAMPLE = Table(
    "losses",
    "Methods by mAP_T",
    ("Task", "Method", "k = 16", "k = 32"),
    (
        tuple(map(Cell, ("image → text", "SCH", "83.73 ± 0.83", "85.55 ± 0.23"))),
        (
            *map(Cell, ("image → text", "DSCH")),
            Cell("84.19 ± 0.37", True),
            Cell("86.49 ± 0.29", True),
        ),
        tuple(map(Cell, ("text → image", "DSCH", "1 failed", "74.67"))),
    ),
    "Best of 100 % in bold; γ_w & R∖T.",
)
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
CELLS = st.builds(Cell, TEXTS, st.booleans())
TABLES = st.integers(2, 4).flatmap(
    lambda width: st.builds(
        Table,
        st.just("t-1"),
        TEXTS,
        st.tuples(*[TEXTS] * width),
        st.lists(st.tuples(*[CELLS] * width), max_size=5),
        TEXTS,
    )
)


def latex_rows(text: str) -> list[list[str]]:
    """Cells between the rules, parted at unescaped ampersands."""
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    lines = [line for line in re.sub(r"\\(top|mid)rule", "\n", body).splitlines() if line.strip()]
    assert all(line.endswith(r" \\") for line in lines)
    return [re.split(r"(?<!\\)&", line.removesuffix(r"\\")) for line in lines]


def test_markdown_and_latex_read_as_the_table():
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
    assert to_latex(EXAMPLE).splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{Methods by $\mathrm{mAP}_{T}$. Best of 100 \% in bold; "
        r"$\gamma_{w}$ \& R$\setminus$T.}",
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


@settings(max_examples=40)
@given(TABLES)
def test_no_text_breaks_a_format(table):
    texts = [[cell.text for cell in row] for row in table.rows]
    assert list(csv.reader(io.StringIO(to_csv(table)))) == [list(table.header), *texts]
    rows = latex_rows(to_latex(table))
    assert [len(row) for row in rows] == [len(table.header)] * (1 + len(table.rows))
    bare = re.sub(r"\\[\\{}&%$#_]", "", to_latex(table))
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not re.search(r"(?<!\\)[%#~^]", re.sub(r"\\\\", "", to_latex(table)))
    lines = to_markdown(table).split("\n")
    cells = [
        re.split(r"(?<!\\)\|", re.sub(r"\\\\", "", line))[1:-1]
        for line in lines[2 : 4 + len(table.rows)]
    ]
    assert [len(row) for row in cells] == [len(table.header)] * (2 + len(table.rows))
    assert len(lines) == 7 + len(table.rows)


@pytest.mark.parametrize(("text", "latex"), [
    ("mAP_T of R∖T", r"$\mathrm{mAP}_{T}$ of R$\setminus$T"),
    ("κ_q = 0.01, γ", r"$\kappa_{q}$ = 0.01, $\gamma$"),
    ("my_loss {x} \\ 5 %", r"my\_loss \{x\} \textbackslash{} 5 \%"),
    ("two\nlines", "two lines"),
    ("[3] *", "{[}3] {*}"),
])  # fmt: skip
def test_symbols_are_set_as_mathematics_and_signs_escaped(text, latex):
    table = Table("t", "", ("", "a"), ((Cell(""), Cell(text)),), "")
    assert latex_rows(to_latex(table))[1][1].strip() == latex


def test_tables_that_cannot_be_written_are_refused(tmp_path):
    short = ("t", "", ("a", "b"), ((Cell("x"),),), "")
    check_refusal("row 0 has 1 cells, the header 2", Table, *short, error=ValueError)
    twice = [EXAMPLE, EXAMPLE]
    check_refusal("two tables have one name", write_tables, twice, tmp_path, error=ValueError)


SCH = {"name": "sch", "kappa_q": 0.0}


def cells(table: Table) -> dict[tuple[str, str], list[str]]:
    """(block, row) -> texts, bold ones in stars."""
    texts = [[f"*{cell.text}*" if cell.bold else cell.text for cell in row] for row in table.rows]
    return {(block, name): others for block, name, *others in texts}


def test_methods_stand_against_lengths_in_a_block_a_task():
    results = []
    for method, loss, lift in (("SCH", SCH, 0.0), ("DSCH", None, 0.02)):
        for k, share in ((64, 0.4 + lift), (16, 0.3 - lift)):
            for seed in range(3):
                shares = {"image->text": share + 0.01 * seed, "text->image": share + 0.1}
                results.append(made_result(method, seed, shares, k, loss=loss))
    table = losses_table(results)
    assert table.header == ("Task", "Method", "k = 16", "k = 64")
    assert cells(table) == {
        ("image → text", "SCH"): ["*31.00 ± 1.00*", "41.00 ± 1.00"],
        ("image → text", "DSCH"): ["29.00 ± 1.00", "*43.00 ± 1.00*"],
        ("image → text", "chance"): ["30.00", "30.00"],
        ("text → image", "SCH"): ["*40.00 ± 0.00*", "50.00 ± 0.00"],
        ("text → image", "DSCH"): ["38.00 ± 0.00", "*52.00 ± 0.00*"],
        ("text → image", "chance"): ["30.00", "30.00"],
    }
    assert "over 3 seeds" in table.caption
    assert table.title == "Methods by tie-aware mAP: test queries, retrieval set R, last epoch"


def test_runs_that_are_not_there_are_seen_in_their_cell_and_named_below():
    results = [
        made_result("DSCH", 0, 0.80),
        made_result("DSCH", 1, 0.82),
        made_result("DSCH", 2, status="failed"),
    ]
    for seed, status in enumerate(("missing", "failed", "missing")):
        results.append(made_result("SCH", seed, status=status, loss=SCH))
    results.append(made_result("DSCH", 0, 0.9, n_bits=64))
    table = losses_table(results)
    found = cells(table)
    assert found["image → text", "DSCH"] == ["81.00 ± 1.41 (2 of 3; 1 failed)", "90.00"]
    assert found["image → text", "SCH"] == ["2 missing, 1 failed", "–"]
    assert table.caption.endswith(
        "Failed: DSCH-k32-seed2 (out of memory). Failed: SCH-k32-seed1 (out of memory). "
        "Not run to the end: SCH-k32-seed0, SCH-k32-seed2."
    )


def test_what_no_run_has_is_seen():
    nothing = losses_table(
        [made_result("DSCH", 0, status="missing"), made_result("DSCH", 1, status="failed")]
    )
    assert cells(nothing) == {
        ("every task", "DSCH"): ["1 missing, 1 failed"],
        ("every task", "chance"): ["–"],
    }
    results = [
        made_result("DSCH", 0, views=("test", "leak_free")),
        made_result("DSCH", 1, chance=0.32),
    ]
    assert cells(losses_table(results, "leak_free"))["image → text", "DSCH"] == [
        "50.00 (1 of 2; 1 not evaluated)"
    ]
    assert cells(losses_table(results))["image → text", "chance"] == ["30.00 … 32.00"]


def test_cells_hold_seeds_of_one_method_only():
    first = made_result("DSCH", 0)
    says = "DSCH-k32-seed1 and DSCH-k32-seed0 stand in one cell but differ"
    check_refusal(says, losses_table, [first, made_result("DSCH", 1, loss=SCH)])
    check_refusal("are the same method, length and seed", losses_table, [first, first])


def test_architectures_stand_side_by_side():
    shares = {"tdsrdh": 0.5, "cliphash": 0.4}
    results = [made_result("SCH", 0, share, model=model) for model, share in shares.items()]
    table = tables.architectures_table(results)
    assert table.header == ("Task", "Method", "tdsrdh, k = 32", "cliphash, k = 32")
    assert cells(table)["image → text", "SCH"] == ["50.00", "40.00"]


def test_a_sweep_shows_both_figures():
    results = []
    for w, share, area in ((10.0, 0.6, 0.7), (2.0, 0.5, 0.8), (2.5, 0.6, None)):
        more = {"loss": {"gamma_w": w}, "roc_auc": area, "views": ("validation",)}
        results += [made_result(f"γ_w = {w}", seed, share + 0.02 * seed, **more) for seed in (0, 1)]
    table = gamma_w_table(results)
    assert table.header == ("Figure", "γ_w", "image → text", "text → image")
    assert cells(table) == {
        ("mAP_T", "2"): ["51.00 ± 1.41"] * 2, ("mAP_T", "2.5"): ["*61.00 ± 1.41*"] * 2,
        ("mAP_T", "10"): ["*61.00 ± 1.41*"] * 2, ("mAP_T", "chance"): ["30.00"] * 2,
        ("ROC-AUC", "2"): ["*80.00 ± 0.00*"] * 2, ("ROC-AUC", "2.5"): ["2 undefined"] * 2,
        ("ROC-AUC", "10"): ["70.00 ± 0.00"] * 2, ("ROC-AUC", "chance"): ["50.00"] * 2,
    }  # fmt: skip
    results.append(made_result("SCH", 0, loss=SCH))
    check_refusal("SCH-k32-seed0: its loss has no gamma_w", gamma_w_table, results)


def test_views_come_in_order_primary_first():
    views = ("validation", "leak_free", "test")
    results = [made_result("DSCH", 0, views=views, checkpoints=("best", "last"))]
    names = [table.name for table in all_views(losses_table, results)]
    ordered = ("test", "leak_free", "validation")
    assert names[:3] == [f"losses-{view}-last" for view in ordered]
    assert names[3:] == [f"losses-{view}-best" for view in ordered]
    sweep = [table.name for table in all_views(gamma_w_table, results, "validation")]
    assert sweep[:2] == ["gamma-w-validation-last", "gamma-w-test-last"]
    nothing = all_views(losses_table, [made_result("DSCH", 0, status="missing")])
    assert [table.name for table in nothing] == ["losses-test-last"]


def result(
    method: str, k: int, seed: int, value: float, gamma_w: float = 8.0, folder: Path = Path("none")
) -> Result:
    shares = {"image->text": value, "text->image": value + 0.01}
    more = {"roc_auc": value / 2, "views": ("test", "validation"), "chance": 0.25}
    loss = {"gamma_w": gamma_w, "kappa_q": 0.01}
    return replace(made_result(method, seed, shares, k, loss=loss, **more), folder=folder)


def log(losses: list[float], scores: dict[int, float]) -> list[dict]:
    entries = [{"epoch": epoch, "loss": loss} for epoch, loss in enumerate(losses)]
    for epoch, score in scores.items():
        cross = {"image->text": score, "text->image": score + 0.1}
        entries[epoch]["validation"] = {"text->text": 0.9} | cross
    return entries


def test_code_lengths_show_means_and_sample_std_of_each_method():
    values = {("A", 16): [0.5, 0.6, 0.7], ("A", 32): [0.6, 0.8], ("B", 16): [0.4]}
    results = []
    for (method, k), group in values.items():
        results += [result(method, k, seed, value) for seed, value in enumerate(group)]
    figure = _code_length_plot(results)
    for number, axes in enumerate(figure.axes):
        lines = {line.get_label(): line for line in axes.lines}
        np.testing.assert_allclose(lines["A"].get_ydata(), [60 + number, 70 + number])
        np.testing.assert_allclose(lines["B"].get_ydata(), [40 + number, np.nan])
        halves = [(bar[1, 1] - bar[0, 1]) / 2 for bar in axes.collections[0].get_segments()]
        np.testing.assert_allclose(halves, [10, 100 * np.std([0.6, 0.8], ddof=1)])
        assert "chance 25.0 %" in axes.get_title()
    styles = {(line.get_linestyle(), line.get_marker()) for line in figure.axes[0].lines}
    assert len([style for style, _ in styles if style != "None"]) == 2


def test_gamma_w_has_a_panel_for_each_figure():
    results = []
    for gamma_w in (2.0, 4.0, 8.0):
        for seed in range(2):
            results.append(result("DSCH", 32, seed, 0.5 + (gamma_w + seed) / 100, gamma_w))
    precision, area = _gamma_w_plot(results).axes
    np.testing.assert_allclose(precision.lines[0].get_xdata(), [2, 4, 8])
    np.testing.assert_allclose(precision.lines[0].get_ydata(), [52.5, 54.5, 58.5])
    np.testing.assert_allclose(area.lines[0].get_ydata(), [26.25, 27.25, 29.25])


def test_several_methods_are_drawn_as_shares_and_means_over_seeds():
    logs = {"A": [log([4, 2, 1], {1: 0.5}), log([2, 1], {1: 0.7})], "B": [log([10, 10], {})]}
    losses, scores = _training_plot(logs).axes
    # the epochs that both seeds have
    np.testing.assert_allclose(losses.lines[0].get_ydata(), [100, 50])
    np.testing.assert_allclose(losses.lines[1].get_ydata(), [100, 100])
    (line,) = scores.lines
    # mean over two seeds of the mean of the cross-modal tasks
    np.testing.assert_allclose(line.get_ydata(), [65])


def test_a_grid_gets_the_plots_that_its_runs_allow(tmp_path):
    (tmp_path / "log.jsonl").write_text(
        "".join(json.dumps(entry) + "\n" for entry in log([2, 1], {1: 0.5}))
    )
    results = [result("DSCH", 32, 0, 0.5, g, tmp_path) for g in (2.0, 8.0)]
    assert set(grid_plots(results)) == {"gamma-w-k32-kq0.01", "training-k32"}
    assert grid_plots([Result("a", tmp_path, "A", {}, "missing")]) == {}
    assert "map-over-bits" in grid_plots([*results, result("SCH", 16, 0, 0.4)])


def test_each_loss_has_its_mean_and_spread_in_every_form_on_each_collection():
    from plots import benchmark_plot  # of tools/site, which lab.grids reads from

    shares = {"A, one setting": (0.2, 0.2), "A, tuned": (0.7, 0.7)}
    shares |= {"B, one setting": (0.6, 0.62), "B, tuned": (0.6, 0.64)}
    results = []
    better = []
    make = partial(made_result, views=("leak_free", "test"))
    for method, values in shares.items():
        results += [make(method, seed, share) for seed, share in enumerate(values)]
        better += [make(method, seed, 0.5) for seed in range(2)]
    panels = benchmark_plot({"features": results, "wikipedia": better}).axes
    assert [panel.get_title() for panel in panels] == ["COCO-17", "Wikipedia"]
    assert [label.get_text() for label in panels[0].get_yticklabels()] == ["A", "B"]
    tuned, one_setting = panels[0].containers
    assert list(one_setting.lines[0].get_xdata()) == pytest.approx([20, 61])
    assert list(one_setting.lines[0].get_ydata()) == [0, 1]
    assert list(tuned.lines[0].get_xdata()) == pytest.approx([70, 62])
    (_, bar) = tuned.lines[2][0].get_segments()
    assert bar[1, 0] - bar[0, 0] == pytest.approx(2 * np.std([60, 64], ddof=1))
