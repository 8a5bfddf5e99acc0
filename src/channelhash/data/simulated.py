"""``simulated``: features drawn from real label rows, to compare losses where label statistics alone matter."""

from pathlib import Path

import numpy as np

from channelhash.data.features import read_labels
from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.utils.array_files import read_arrays
from channelhash.utils.seeds import generator


def load_simulated(
    path: Path,
    rows: int = 14_000,
    width: int = 128,
    image_noise: float = 1.6,
    text_noise: float = 2.2,
    simulation_seed: int = 0,
) -> Records:
    """Simulate features of two modalities, each ``labels · W / √c + noise · ε`` with W ``(c, width)``, ε ~ N(0, 1).

    Label rows are drawn without replacement among those with at least one label. Features are linear in the labels;
    the noise alone decides how much a modality tells about them.

    Args:
        path: an ``.npz``, ``.mat`` or ``.h5`` file with ``labels`` ``(n, c)`` and perhaps ``label_names``.
        rows: number of label rows to draw.
        width: d of both modalities.
        image_noise: spread of the images' noise.
        text_noise: spread of the texts' noise.
        simulation_seed: seed of rows, matrices and noise.

    Raises:
        InputError: the file has no labels, or fewer labelled rows than ``rows``.
    """
    arrays = read_arrays(path)
    if "labels" not in arrays:
        raise InputError(f"{path}: has no array 'labels'; it has {', '.join(sorted(arrays)) or 'none'}")
    labels, names = read_labels(arrays["labels"], arrays, path)
    labelled = np.flatnonzero(labels.any(axis=1))
    if not 1 <= rows <= len(labelled):
        raise InputError(f"data.rows is {rows}, but {path} has {len(labelled)} rows with a label")
    chosen = np.sort(generator(simulation_seed, "simulated rows").choice(labelled, size=rows, replace=False))
    drawn = labels[chosen]
    items = {}
    for modality, noise in {"image": image_noise, "text": text_noise}.items():
        random = generator(simulation_seed, "simulated features", modality)
        signal = drawn @ random.standard_normal((labels.shape[1], width)) / np.sqrt(labels.shape[1])
        items[modality] = (signal + noise * random.standard_normal(signal.shape)).astype(np.float32)
    removed = {"no label": len(labels) - len(labelled), "not drawn": len(labelled) - rows}
    return Records(tuple(map(str, chosen)), items, drawn, names, removed=removed, found=len(labels))
