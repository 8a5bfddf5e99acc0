"""Numbers of cells of a table in which one method is best, counted from the means as they are printed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Wins(NamedTuple):
    """Numbers of cells in which a method is strictly best, level with the best of the others, and behind it.

    >>> Wins(best=3, tied=1, behind=2).cells
    6
    """

    best: int
    tied: int
    behind: int

    @property
    def cells(self) -> int:
        """Number of all cells."""
        return sum(self)


def count_wins(cells: Sequence[Mapping[str, float]], method: str) -> Wins:
    """Count ``method`` against the best other one, cell by cell.

    Args:
        cells: method -> mean in percent; compared to two decimals, as tables print it.
        method: counted where a cell has it and at least one other.

    >>> count_wins([{"a": 1.0, "b": 2.0}, {"a": 2.001, "b": 2.0}], "b")
    Wins(best=1, tied=1, behind=0)
    """
    counts = {1: 0, 0: 0, -1: 0}
    for cell in cells:
        rivals = [round(mean, 2) for name, mean in cell.items() if name != method]
        if method in cell and rivals:
            mean, best = round(cell[method], 2), max(rivals)
            counts[(mean > best) - (mean < best)] += 1
    return Wins(counts[1], counts[0], counts[-1])
