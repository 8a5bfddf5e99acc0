"""Do the maps find what matters? Hide what a map calls most influential, and as much elsewhere, and compare.

That the patch which changes the distance most changes it more than another one is so by construction. So the map is
made with one kind of patch and tested with the other (grey and blur), and many cells are hidden together, whose joint
effect no patch has measured (a deletion curve, as in Petsiuk et al. 2018, § 4.3). The control is the same mask moved to
another place, wrapped around the edges, so that it has the same shape; the pictures are cut to their centre square
first, so that no place is one that the model does not see.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from channelhash.codes import binarize
from channelhash.codes.code_set import CodeSet
from channelhash.errors import InputError
from channelhash.explanation.agreeing_bits import Outputs
from channelhash.explanation.api import encoders_of
from channelhash.explanation.explanation import MapSettings
from channelhash.explanation.occlusion import (
    Cell,
    Encode,
    Figures,
    Fill,
    Grid,
    distance_changes,
    hidden,
    map_picture,
    map_words,
    picture_grid,
    reduced,
)
from channelhash.metrics.significance import bootstrap_interval, paired_test
from channelhash.models import load_model
from channelhash.search.index.brute_force import nearest
from channelhash.utils.seeds import generator

#: Parts of the picture's cells that are hidden together, and of a text's words that are left out together.
SHARES = (0.125, 0.25, 0.5)
#: Other places, or other words, that a pair is compared with.
CONTROLS = 4

Change = tuple[float, float]  # of the relaxed and of the Hamming distance


def check_maps(
    run: Path, pairs: int, settings: MapSettings, seed: int = 0, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """The deletion check over pairs of a run: a test query's picture and the nearest text of the retrieval set.

    Args:
        run: a run's folder with codes, whose model encodes pictures and texts.
        pairs: number of queries, spaced evenly over the test queries.
        settings: of the maps; the test hides with the other fill.
        seed: of the other places and words.
        progress: called with (done, pairs).

    Returns:
        ``{"pairs": n, "rows": [{"what", "pairs", "most": {"relaxed", "hamming"}, "other": {…}, "difference":
        {"mean", "lower", "upper", "p"}, "larger": share of pairs}]}``: mean change of the distance in bits with the
        most influential part gone, with an equally large other part gone, and the difference of the relaxed distance
        with its 95 % bootstrap interval over pairs and the p-value of a sign-flip test.

    Raises:
        InputError: the run has no codes yet, or no pictures and texts of its items are known.
    """
    model = load_model(run)
    query, database = (_codes(run, role) for role in ("query", "retrieval"))
    if not query.images or not database.texts:
        raise InputError(f"{run}: --check needs the pictures and texts of the items; this run knows features alone")
    rows = np.unique(np.linspace(0, len(query) - 1, pairs).astype(int))
    found = nearest(query.codes["image"][rows], database.codes["text"], database.ids, 1)
    changes: dict[str, list[tuple[Change, Change]]] = {}
    encoders = encoders_of(model)
    for done, (row, hit) in enumerate(zip(rows.tolist(), found, strict=True)):
        text = database.texts[int(hit.rows[0])]
        with Image.open(query.images[row]) as opened:
            picture = centre_square(reduced(opened))
        seen, read = encoders["image"]([picture])[0], encoders["text"]([text])[0]
        random = generator(seed, "deletion", row)
        compared = {
            **_compare_cells(picture, encoders["image"], read, settings, random),
            **_compare_words(text, encoders["text"], seen, settings.words, random),
        }
        for what, change in compared.items():
            changes.setdefault(what, []).append(change)
        if progress:
            progress(done + 1, len(rows))
    return {"pairs": len(rows), "fill": settings.fill, "rows": [_row(what, each) for what, each in changes.items()]}


def most_influential(influence: Figures, count: int) -> list[Cell]:
    """The ``count`` cells of ``(rows, columns)`` whose hiding parts the pair most, the strongest first."""
    order = np.argsort(-influence.ravel(), kind="stable")[:count]
    return [(int(place) // influence.shape[1], int(place) % influence.shape[1]) for place in order]


def moved(cells: Sequence[Cell], grid: Grid, down: int, right: int) -> list[Cell]:
    """The same cells elsewhere, wrapped around the edges."""
    return [((row + down) % grid.rows, (column + right) % grid.columns) for row, column in cells]


def centre_square(picture: Image.Image) -> Image.Image:
    """The centre square of a picture."""
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    return picture.crop((left, top, left + side, top + side))


def _compare_cells(
    picture: Image.Image, encode: Encode, other: Outputs, settings: MapSettings, random: np.random.Generator
) -> dict[str, tuple[Change, Change]]:
    grid = picture_grid(picture.size, settings.cells, settings.patch)
    influence = map_picture(picture, grid, encode, other, settings.fill).influence
    fill: Fill = "blur" if settings.fill == "grey" else "grey"
    whole, compared = encode([picture])[0], {}
    for share in SHARES:
        cells = most_influential(influence, max(1, round(share * influence.size)))
        # Any place but its own: 0 < shift < rows · columns.
        shifts = random.integers(1, influence.size, CONTROLS).tolist()
        others = [moved(cells, grid, *divmod(shift, grid.columns)) for shift in shifts]
        parts = encode([hidden(picture, grid, mask, fill) for mask in (cells, *others)])
        compared[f"picture, {share:.1%} of the cells"] = _changes(whole, parts, other)
    return compared


def _compare_words(
    text: str, encode: Encode, other: Outputs, most: int, random: np.random.Generator
) -> dict[str, tuple[Change, Change]]:
    words = text.split()[:most]
    if len(words) < 3:
        return {}
    influence = np.array([word.influence for word in map_words(" ".join(words), encode, other, most)])
    whole, compared = encode([" ".join(words)])[0], {}
    for name, count in {"words, one": 1, "words, half": len(words) // 2}.items():
        order = np.argsort(-influence, kind="stable")
        masks = [order[:count], *(random.permutation(len(words))[:count] for _ in range(CONTROLS))]
        texts = [" ".join(word for i, word in enumerate(words) if i not in mask) for mask in masks]
        compared[name] = _changes(whole, encode(texts), other)
    return compared


def _changes(whole: Outputs, parts: Outputs, other: Outputs) -> tuple[Change, Change]:
    """Changes of both distances with the first part's, and the mean of those with the others."""
    relaxed = distance_changes(whole, parts, other)
    code = binarize(other[None])
    hamming = (binarize(parts) != code).sum(axis=1) - (binarize(whole[None]) != code).sum()
    return (float(relaxed[0]), float(hamming[0])), (float(relaxed[1:].mean()), float(hamming[1:].mean()))


def _row(what: str, changes: list[tuple[Change, Change]]) -> dict[str, Any]:
    values = np.array(changes)  # (pairs, most or other, relaxed or hamming)
    most, other = values[:, 0], values[:, 1]
    interval, test = bootstrap_interval(most[:, 0] - other[:, 0]), paired_test(most[:, 0], other[:, 0])
    return {
        "what": what,
        "pairs": len(changes),
        "most": dict(zip(("relaxed", "hamming"), most.mean(axis=0).tolist(), strict=True)),
        "other": dict(zip(("relaxed", "hamming"), other.mean(axis=0).tolist(), strict=True)),
        "difference": {"mean": interval.mean, "lower": interval.lower, "upper": interval.upper, "p": test.p_value},
        "larger": float((most[:, 0] > other[:, 0]).mean()),
    }


def _codes(run: Path, role: str) -> CodeSet:
    path = run / "codes" / f"test-{role}.parquet"
    if not path.exists():
        raise InputError(f"{run}: this run has no codes yet; write them with `channelhash evaluate {run}`")
    return CodeSet.load(path)
