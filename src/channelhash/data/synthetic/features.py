"""``simulated``: features made of real label rows, for questions about losses that need label statistics alone."""

from pathlib import Path

import numpy as np

from channelhash.data.features import label_matrix, texts_of
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
    """Features of two modalities, each ``labels · W / √c + noise · ε`` with W ``(c, width)`` and ε standard normal.

    Label rows are drawn without replacement among those with at least one label. What a modality says of the labels is
    linear and the same for all; its noise alone decides how much can be told from it.

    Args:
        path: an ``.npz``, ``.mat`` or ``.h5`` file with ``labels`` ``(n, c)`` and perhaps ``label_names``.
        rows: how many label rows; at most those with a label.
        width: d of both modalities.
        image_noise: spread of the images' noise.
        text_noise: spread of the texts' noise.
        simulation_seed: of rows, matrices and noise.

    Raises:
        InputError: the file has no labels, or fewer labelled rows than asked for.
    """
    arrays = read_arrays(path)
    if "labels" not in arrays:
        raise InputError(f"{path}: has no array 'labels'; it has {', '.join(sorted(arrays)) or 'none'}")
    labels, names = label_matrix(arrays["labels"], path)
    if "label_names" in arrays:
        names = texts_of(arrays["label_names"], "label_names", path)
    if len(names) != labels.shape[1]:
        raise InputError(f"{path}: {len(names)} label_names, but labels have {labels.shape[1]} columns")
    labelled = np.flatnonzero(labels.any(axis=1))
    if not 1 <= rows <= len(labelled):
        raise InputError(f"data.rows is {rows}, but {path} has {len(labelled)} rows with a label")
    chosen = np.sort(generator(simulation_seed, "simulated rows").choice(labelled, size=rows, replace=False))
    kept = labels[chosen]
    items = {}
    for modality, noise in {"image": image_noise, "text": text_noise}.items():
        random = generator(simulation_seed, "simulated features", modality)
        signal = kept @ random.standard_normal((labels.shape[1], width)) / np.sqrt(labels.shape[1])
        items[modality] = (signal + noise * random.standard_normal(signal.shape)).astype(np.float32)
    removed = {"no label": len(labels) - len(labelled), "not drawn": len(labelled) - rows}
    return Records(tuple(map(str, chosen)), items, kept, names, removed=removed, found=len(labels))
