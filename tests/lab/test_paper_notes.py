"""The wins that `docs/explanation/paper-notes.md` counts in the paper's tables come out of the tables."""

from pathlib import Path

import pytest

from channelhash.lab.experiments.comparisons import count_wins
from channelhash.lab.experiments.paper import load_printed, within_spread
from channelhash.lab.experiments.tables import Spread

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "paper-notes.md").read_text(encoding="utf-8")
NUMBERS = load_printed()
SHORT = {"image->text": "I→T", "text->image": "T→I", "image->image": "I→I", "text->text": "T→T"}
CELLS = {}  # (model, data set, n_bits, task) -> loss -> number
for number in NUMBERS:
    if number.split == "test":  # the table of architectures repeats cells of the table of losses
        place = number.model, number.dataset, number.n_bits, number.printed_task
        CELLS.setdefault(place, {})[number.loss] = number


def means(cells):
    return [{name: number.mean for name, number in cell.items()} for cell in cells.values()]


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
    level = sum(within_spread(Spread(cell["DSCH"].mean, cell["DSCH"].std, 3), cell["SCH"]) for cell in CELLS.values())
    return (
        f"- DSCH − SCH over the {len(gains)} cells: {min(gains):+.2f} to {max(gains):+.2f} points, mean "
        f"{sum(gains) / len(gains):+.2f}; within the joint spread in {level}."
    ).replace("-0", "−0")


LABELS = dict.fromkeys((n.printed_task, n.likely_task) for n in NUMBERS if n.split == "test")
LINES = [wins_line(), *(task_line(*pair) for pair in LABELS), losses_line(), long_codes_line(), gain_line()]


@pytest.mark.parametrize("line", LINES)
def test_a_quoted_number_comes_out_of_the_tables(line):
    assert line in PAGE.splitlines()


def test_the_one_cell_behind_by_pictures_or_across_modalities():
    behind = [
        key
        for key, cell in CELLS.items()
        if key[3] != "text->text" and cell["DSCH"].mean <= max(cell["SCH"].mean, cell["TDSRDH"].mean)
    ]
    assert f"The printed numbers ({len(NUMBERS)}, four tables)" in PAGE
    assert behind == [("TDSRDH", "MIRFLICKR-25k", 16, "image->image")]
