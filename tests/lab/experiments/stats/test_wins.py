"""Wins are counted cell by cell."""

from hypothesis import given
from hypothesis import strategies as st

from channelhash.lab.experiments.comparisons import Wins, count_wins


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
