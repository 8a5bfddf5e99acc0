"""The wins that `docs/explanation/paper-notes.md` counts in the paper's tables come out of the tables."""

from pathlib import Path

import pytest

from channelhash.lab.experiments.studies.paper import _within_spread, load_printed
from channelhash.lab.experiments.tables import Spread

PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "paper-notes.md").read_text(encoding="utf-8")
NUMBERS = load_printed()
SHORT = {"image->text": "I→T", "text->image": "T→I", "image->image": "I→I", "text->text": "T→T"}
CELLS = {}  # (model, data set, n_bits, task) -> loss -> number
for number in NUMBERS:
    if number.split == "test":  # the table of architectures repeats cells of the table of losses
        place = number.model, number.dataset, number.n_bits, number.printed_task
        CELLS.setdefault(place, {})[number.loss] = number


def wins(cells):
    """Cells in which DSCH is strictly best, level with the best other loss, and behind it, to two decimals."""
    counts = {1: 0, 0: 0, -1: 0}
    for cell in cells:
        mean, best = cell["DSCH"].mean, max(number.mean for name, number in cell.items() if name != "DSCH")
        counts[(mean > best) - (mean < best)] += 1
    return tuple(counts.values())


def lines():
    """The lines of the page, from the numbers."""
    best, tied, behind = wins(CELLS.values())
    yield f"- DSCH on the {len(CELLS)} test cells: strictly best in {best}, tied in {tied}, behind in {behind}."
    for printed, likely in dict.fromkeys((n.printed_task, n.likely_task) for n in NUMBERS if n.split == "test"):
        counts = wins(cell for (*_, task), cell in CELLS.items() if task == printed)
        yield f"| {SHORT[printed]} | {SHORT[likely]} | {' | '.join(map(str, counts))} |"
    cells = [cell for (model, *_), cell in CELLS.items() if model == "TDSRDH"]
    _, tied, behind = wins(cells)
    yield f"- On the {len(cells)} of them with the TDSRDH model: behind in {behind}, tied in {tied}."
    cells = [cell for (_, _, n_bits, _), cell in CELLS.items() if n_bits >= 64]
    yield f"- At 64 and 128 bits: strictly best in {wins(cells)[0]} of {len(cells)}."
    gains = [cell["DSCH"].mean - cell["SCH"].mean for cell in CELLS.values()]
    level = sum(_within_spread(Spread(cell["DSCH"].mean, cell["DSCH"].std, 3), cell["SCH"]) for cell in CELLS.values())
    yield (
        f"- DSCH − SCH over the {len(gains)} cells: {min(gains):+.2f} to {max(gains):+.2f} points, mean "
        f"{sum(gains) / len(gains):+.2f}; within the joint spread in {level}."
    ).replace("-0", "−0")


@pytest.mark.parametrize("line", [*lines()])
def test_a_quoted_number_comes_out_of_the_tables(line):
    assert line in PAGE.splitlines()
