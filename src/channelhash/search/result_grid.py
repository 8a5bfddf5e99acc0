"""Queries and their answers as rows of a contact sheet, right and wrong answers marked."""

from pathlib import Path

import numpy as np

from channelhash.codes.code_set import CodeSet
from channelhash.search.index.brute_force import nearest
from channelhash.utils.image_grid import Cell, bits

#: Answers in a row.
ANSWERS = 7


def answer_rows(
    query: CodeSet, database: CodeSet, task: str, count: int = 5, answers: int = ANSWERS
) -> list[list[Cell]]:
    """Make one row a query: itself, then the nearest items, right if they share a label with it.

    Args:
        query: queries with labels, of which some are picked, evenly spaced.
        database: what is searched, with the same labels.
        task: e.g. ``"image->text"``: which codes ask, and which are searched. An answer is shown as a picture where
            there is one, whichever of its codes was found.
        count: rows, at most as many as there are queries.
        answers: answers a row.

    Raises:
        ValueError: labels are missing.

    >>> codes = CodeSet(["a", "b"], {"image": np.array([[0], [7]], np.uint8)}, np.eye(2), n_bits=8)
    >>> [cell.right for cell in answer_rows(codes, codes, "image->image")[0]]
    [None, True, False]
    """
    if query.labels is None or database.labels is None:
        raise ValueError("right and wrong answers go by labels; these codes have none")
    query_modality, database_modality = task.split("->")
    picked = np.unique(np.linspace(0, len(query) - 1, count).astype(int))
    matches = nearest(query.codes[query_modality][picked], database.codes[database_modality], database.ids, answers)
    rows = []
    for row, match in zip(picked.tolist(), matches, strict=True):
        cells = [_query_cell(query, row, query_modality)]
        for item, distance in zip(match.rows.tolist(), match.distances.tolist(), strict=True):
            right = bool((query.labels[row] & database.labels[item]).any())
            cells.append(answer_cell(database, item, distance, right))
        rows.append(cells)
    return rows


def answer_cell(database: CodeSet, row: int, distance: int, right: bool | None = None) -> Cell:
    """Make the cell of an answer: its distance, and its image and text or what else is known of it.

    >>> codes = CodeSet(["a"], {"image": np.array([[0]], np.uint8)}, None, n_bits=8)
    >>> answer_cell(codes, row=0, distance=3).caption
    '3 bits: a'
    """
    return Cell(_picture(database, row), f"{bits(distance)}: {_words(database, row)}", right)


def _query_cell(query: CodeSet, row: int, query_modality: str) -> Cell:
    picture = _picture(query, row) if query_modality == "image" else None
    labels = ", ".join(query.names_of(row))
    return Cell(picture, labels if picture else _words(query, row))


def _words(codes: CodeSet, row: int) -> str:
    return (codes.texts[row] if codes.texts else ", ".join(codes.names_of(row))) or str(codes.ids[row])


def _picture(codes: CodeSet, row: int) -> Path | None:
    return Path(codes.images[row]) if codes.images and codes.images[row] else None
