"""Every number that `docs/explanation/paper-notes.md` quotes of the paper's tables comes out of the tables."""

from pathlib import Path

import pytest

from channelhash.lab.experiments.comparisons import count_wins
from channelhash.lab.experiments.paper import load_printed, within_spread
from channelhash.lab.experiments.tables import Spread

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "paper-notes.md").read_text(encoding="utf-8")
NUMBERS = load_printed()
SHORT = {"image->text": "I→T", "text->image": "T→I", "image->image": "I→I", "text->text": "T→T"}
CELLS, SWEEP = {}, {}  # (model, data set, n_bits, task) -> loss -> number; (metric, data set, task) -> γ_w -> number
for number in NUMBERS:
    if number.split == "test":  # the table of architectures repeats cells of the table of losses
        place = number.model, number.dataset, number.n_bits, number.printed_task
        CELLS.setdefault(place, {})[number.loss] = number
    if number.table == "gamma_w":
        place = number.metric, number.dataset, number.printed_task
        SWEEP.setdefault(place, {})[f"{number.gamma_w:g}"] = number


def means(cells):
    return [{name: number.mean for name, number in cell.items()} for cell in cells.values()]


def scores_by_setting(metric, label, split=None):
    """Task -> mean for each printed setting; one that two tables repeat counts once."""
    scores = {}
    for n in NUMBERS:
        if n.metric == metric and split in (None, n.split):
            scores.setdefault((n.model, n.dataset, n.loss, n.n_bits, n.gamma_w, n.split), {})[getattr(n, label)] = (
                n.mean
            )
    return list(scores.values())


def shape_line(name, metric, split, label):
    scores = scores_by_setting(metric, label, split)
    gaps = [abs(tasks["image->text"] - tasks["text->image"]) for tasks in scores]
    best = [max(tasks, key=tasks.get) for tasks in scores]
    highest = ", ".join(f"{SHORT[task]} in {best.count(task)}" for task in dict.fromkeys(best))
    return f"| {name} | {len(gaps)} | {min(gaps):.2f}, {sum(gaps) / len(gaps):.2f}, {max(gaps):.2f} | {highest} |"


def agrees(one, other):
    """Whether two printed means lie within their joint spread."""
    return within_spread(Spread(one.mean, one.std, 3), other)


def sweep_line(metric):
    cells = {place: cell for place, cell in SWEEP.items() if place[0] == metric}
    wins = count_wins(means(cells), "8")
    others = [agrees(cell["8"], number) for cell in cells.values() for name, number in cell.items() if name != "8"]
    return (
        f"- γ_w = 8 by {metric}: strictly best in {wins.best} of {wins.cells} rows, tied in {wins.tied}, behind in "
        f"{wins.behind}; of its {len(others)} comparisons with another γ_w, {sum(others)} lie within the joint spread."
    )


def wins_line():
    wins = count_wins(means(CELLS), "DSCH")
    counts = f"strictly best in {wins.best}, tied in {wins.tied}, behind in {wins.behind}"
    return f"- DSCH on the {wins.cells} test cells: {counts}."


def task_line(printed, likely):
    """Of one printed task, named as it likely is."""
    found = {
        place: cell
        for place, cell in CELLS.items()
        if {(number.printed_task, number.likely_task) for number in cell.values()} == {(printed, likely)}
    }
    wins = count_wins(means(found), "DSCH")
    return f"| {SHORT[printed]} | {SHORT[likely]} | {wins.best} | {wins.tied} | {wins.behind} |"


def long_codes_line():
    wins = count_wins(means({place: cell for place, cell in CELLS.items() if place[2] >= 64}), "DSCH")
    return f"- At 64 and 128 bits: strictly best in {wins.best} of {wins.cells}."


def losses_line():
    wins = count_wins(means({place: cell for place, cell in CELLS.items() if place[0] == "TDSRDH"}), "DSCH")
    return f"- On the {wins.cells} of them with the TDSRDH model: behind in {wins.behind}, tied in {wins.tied}."


def gain_line():
    gains = [cell["DSCH"].mean - cell["SCH"].mean for cell in CELLS.values()]
    level = sum(agrees(cell["DSCH"], cell["SCH"]) for cell in CELLS.values())
    return (
        f"- DSCH − SCH over the {len(gains)} cells: {min(gains):+.2f} to {max(gains):+.2f} points, mean "
        f"{sum(gains) / len(gains):+.2f}; within the joint spread in {level}."
    ).replace("-0", "−0")


LINES = [
    shape_line("mAP_T, as printed", "mAP_T", None, "printed_task"),
    shape_line("mAP_T, as printed, validation", "mAP_T", "validation", "printed_task"),
    shape_line("mAP_T, likely labels", "mAP_T", None, "likely_task"),
    shape_line("mAP_T, likely labels, validation", "mAP_T", "validation", "likely_task"),
    shape_line("ROC-AUC, validation", "ROC-AUC", "validation", "printed_task"),
    wins_line(),
    *(
        task_line(*labels)
        for labels in dict.fromkeys((n.printed_task, n.likely_task) for n in NUMBERS if n.split == "test")
    ),
    losses_line(),
    long_codes_line(),
    gain_line(),
    sweep_line("ROC-AUC"),
    sweep_line("mAP_T"),
]


@pytest.mark.parametrize("line", LINES)
def test_a_quoted_number_comes_out_of_the_tables(line):
    assert line in PAGE.splitlines()


def test_the_one_cell_behind_by_pictures_or_across_modalities():
    behind = [
        key
        for key, cell in CELLS.items()
        if key[3] != "text->text" and cell["DSCH"].mean <= max(cell["SCH"].mean, cell["TDSRDH"].mean)
    ]
    assert behind == [("TDSRDH", "MIRFLICKR-25k", 16, "image->image")]


def test_no_count_of_the_claims_goes_unchecked():
    section = PAGE[PAGE.index("## What the printed numbers say") : PAGE.index("## Where text")]
    claims = [line for line in section.splitlines() if line.startswith("- ") or (line[:2] == "| " and "→" in line)]
    assert set(claims) <= set(LINES)
    assert len(claims) == 10


def test_the_number_of_printed_numbers():
    assert f"The printed numbers ({len(NUMBERS)}, four tables)" in PAGE
