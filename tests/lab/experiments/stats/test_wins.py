"""Wins are counted cell by cell, and the paper's own come out."""

from hypothesis import given
from hypothesis import strategies as st

from channelhash.lab.experiments.paper.printed_results import load_printed
from channelhash.lab.experiments.stats.wins import Wins, count_wins, printed_sweep_cells, printed_test_cells


def test_best_tied_and_behind():
    cells = [
        {"a": 2.0, "b": 1.0},
        {"a": 1.004, "b": 1.0, "c": 0.5},
        {"a": 1.0, "b": 0.5, "c": 1.5},
        {"a": 9.0},
        {"b": 1.0},
    ]
    assert count_wins(cells, "a") == Wins(1, 1, 1)
    assert count_wins(cells, "a").cells == 3
    assert count_wins(cells, "c") == Wins(1, 0, 1)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 3).map(float), min_size=2)))
def test_every_cell_has_one_winner_or_a_tie(cells):
    wins = [count_wins(cells, method) for method in "abc"]
    tied = sum(sum(mean == max(cell.values()) for mean in cell.values()) > 1 for cell in cells)
    assert sum(win.best for win in wins) + tied == len(cells)
    assert sum(win.cells for win in wins) == sum(map(len, cells))


def means(cells):
    return [{name: number.mean for name, number in cell.items()} for cell in cells.values()]


def test_the_papers_wins_are_34_1_and_5_of_40():
    wins = count_wins(means(printed_test_cells(load_printed())), "DSCH")
    assert wins == Wins(best=34, tied=1, behind=5)
    assert wins.cells == 40


def test_the_papers_sweep():
    assert count_wins(means(printed_sweep_cells(load_printed(), "ROC-AUC")), "8") == Wins(5, 1, 2)
    assert count_wins(means(printed_sweep_cells(load_printed(), "mAP_T")), "8") == Wins(2, 1, 5)
