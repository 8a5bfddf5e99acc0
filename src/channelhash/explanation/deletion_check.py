"""Check the maps: hide the parts that a map calls most influential, and as much elsewhere, and compare.

By construction, the patch that changes the distance most changes it more than any other. So the map is made with one
fill and tested with the other (grey and blur), and many cells are hidden together, whose joint effect no patch has
measured (a deletion curve, as in Petsiuk et al. 2018, § 4.3). The control is the same mask moved to another place,
wrapped around the edges, so that it has the same shape. The images are cropped to their centre square first, so that
the model sees every place.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from channelhash.codes import binarize
from channelhash.codes.code_set import CodeSet
from channelhash.errors import InputError
from channelhash.explanation.agreeing_bits import Outputs
from channelhash.explanation.explanation import MapSettings
from channelhash.explanation.occlusion import (
    Cell,
    Encode,
    Grid,
    Values,
    distance_changes,
    hide_cells,
    make_filler,
    make_grid,
    map_image,
    map_words,
    reduce_image,
)
from channelhash.explanation.sides import make_encoders
from channelhash.metrics.significance import bootstrap_interval, paired_test
from channelhash.models import load_model
from channelhash.search.index.brute_force import nearest
from channelhash.utils.image_files import open_image
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.seeds import generator

#: Shares of the image's cells that are hidden together.
SHARES = (0.125, 0.25, 0.5)
#: Number of other places, or other words, that a pair is compared with.
CONTROLS = 4

Change = tuple[float, float]  # of the relaxed and of the Hamming distance


def check_maps(
    run: Path, pairs: int, settings: MapSettings, seed: int = 0, progress: Progress = no_progress
) -> dict[str, Any]:
    """Run the deletion check over pairs of a run: a test query's image and the nearest text of the retrieval set.

    Args:
        run: a run's folder with codes, whose model encodes images and texts.
        pairs: number of queries, spaced evenly over the test queries.
        settings: of the maps; the test hides with the other fill.
        seed: of the other places and words.
        progress: called with (done, pairs).

    Returns:
        ``{"pairs": n, "rows": [{"what", "pairs", "most": {"relaxed", "hamming"}, "other": {…}, "difference":
        {"mean", "lower", "upper", "p"}, "larger": share of pairs}]}``: mean change of the distance in bits without the
        most influential part, without another part of equal size, and the difference of the relaxed distance with its
        95 % bootstrap interval over pairs and the p-value of a sign-flip test.

    Raises:
        InputError: the run has no codes yet, or no images and texts of its items are known.
    """
    model = load_model(run)
    query, database = (_load_codes(run, role) for role in ("query", "retrieval"))
    if not query.images or not database.texts:
        raise InputError(f"{run}: --check needs the pictures and texts of the items; this run knows features alone")
    rows = np.unique(np.linspace(0, len(query) - 1, pairs).astype(int))
    hits = nearest(query.codes["image"][rows], database.codes["text"], database.ids, 1)
    changes: dict[str, list[tuple[Change, Change]]] = {}
    encoders = make_encoders(model)
    for done, (row, hit) in enumerate(zip(rows.tolist(), hits, strict=True), start=1):
        text = database.texts[int(hit.rows[0])]
        with open_image(query.images[row]) as opened:
            image = crop_centre(reduce_image(opened))
        image_outputs, text_outputs = encoders["image"]([image])[0], encoders["text"]([text])[0]
        random = generator(seed, "deletion", row)
        pair_changes = {
            **_compare_cells(image, encoders["image"], text_outputs, settings, random),
            **_compare_words(text, encoders["text"], image_outputs, settings.max_words, random),
        }
        for what, change in pair_changes.items():
            changes.setdefault(what, []).append(change)
        progress(done, len(rows))
    return {"pairs": len(rows), "fill": settings.fill, "rows": [_row(what, each) for what, each in changes.items()]}


def most_influential(influence: Values, count: int) -> list[Cell]:
    """Return the ``count`` cells of ``(rows, columns)`` whose hiding parts the pair most, the strongest first.

    >>> most_influential(np.array([[0.1, 0.9], [-5.0, 0.5]]), 2)
    [(0, 1), (1, 1)]
    """
    order = np.argsort(-influence.ravel(), kind="stable")[:count]
    return [(int(place) // influence.shape[1], int(place) % influence.shape[1]) for place in order]


def move_cells(cells: Sequence[Cell], grid: Grid, down: int, right: int) -> list[Cell]:
    """Move cells down and to the right, wrapped around the edges.

    >>> move_cells([(0, 1), (1, 2)], Grid(2, 3, patch=1), down=1, right=1)
    [(1, 2), (0, 0)]
    """
    return [((row + down) % grid.rows, (column + right) % grid.columns) for row, column in cells]


def crop_centre(image: Image.Image) -> Image.Image:
    """Return the centre square of an image.

    >>> crop_centre(Image.new("RGB", (30, 20))).size
    (20, 20)
    """
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    return image.crop((left, top, left + side, top + side))


def _compare_cells(
    image: Image.Image, encode: Encode, partner: Outputs, settings: MapSettings, random: np.random.Generator
) -> dict[str, tuple[Change, Change]]:
    grid = make_grid(image.size, settings.cells, settings.patch)
    influence = map_image(image, grid, encode, partner, settings.fill).influence
    filler = make_filler(image, "blur" if settings.fill == "grey" else "grey")
    whole, changes = encode([image])[0], {}
    for share in SHARES:
        cells = most_influential(influence, max(1, round(share * influence.size)))
        # Any place but its own: 0 < shift < rows · columns.
        shifts = random.integers(1, influence.size, CONTROLS).tolist()
        masks = [cells, *(move_cells(cells, grid, *divmod(shift, grid.columns)) for shift in shifts)]
        parts = encode([hide_cells(image, grid, mask, filler) for mask in masks])
        changes[f"picture, {share:.1%} of the cells"] = _compare_changes(whole, parts, partner)
    return changes


def _compare_words(
    text: str, encode: Encode, partner: Outputs, max_words: int, random: np.random.Generator
) -> dict[str, tuple[Change, Change]]:
    words = text.split()[:max_words]
    if len(words) < 3:
        return {}
    influence = np.array([word.influence for word in map_words(" ".join(words), encode, partner, max_words)])
    whole, changes = encode([" ".join(words)])[0], {}
    for name, count in {"words, one": 1, "words, half": len(words) // 2}.items():
        order = np.argsort(-influence, kind="stable")
        masks = [order[:count], *(random.permutation(len(words))[:count] for _ in range(CONTROLS))]
        texts = [" ".join(word for i, word in enumerate(words) if i not in mask) for mask in masks]
        changes[name] = _compare_changes(whole, encode(texts), partner)
    return changes


def _compare_changes(whole: Outputs, parts: Outputs, partner: Outputs) -> tuple[Change, Change]:
    """Return the changes of both distances for the first part, and their means over the other parts."""
    relaxed = distance_changes(whole, parts, partner)
    code = binarize(partner[None])
    hamming = (binarize(parts) != code).sum(axis=1) - (binarize(whole[None]) != code).sum()
    return (float(relaxed[0]), float(hamming[0])), (float(relaxed[1:].mean()), float(hamming[1:].mean()))


def _row(what: str, changes: list[tuple[Change, Change]]) -> dict[str, Any]:
    values = np.array(changes)  # (pairs, most or other, relaxed or hamming)
    most, control = values[:, 0], values[:, 1]
    interval, test = bootstrap_interval(most[:, 0] - control[:, 0]), paired_test(most[:, 0], control[:, 0])
    return {
        "what": what,
        "pairs": len(changes),
        "most": dict(zip(("relaxed", "hamming"), most.mean(axis=0).tolist(), strict=True)),
        "other": dict(zip(("relaxed", "hamming"), control.mean(axis=0).tolist(), strict=True)),
        "difference": {"mean": interval.mean, "lower": interval.lower, "upper": interval.upper, "p": test.p_value},
        "larger": float((most[:, 0] > control[:, 0]).mean()),
    }


def _load_codes(run: Path, role: str) -> CodeSet:
    path = run / "codes" / f"test-{role}.parquet"
    if not path.exists():
        raise InputError(f"{run}: this run has no codes yet; write them with `channelhash evaluate {run}`")
    return CodeSet.load(path)
