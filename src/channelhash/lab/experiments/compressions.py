"""Ways to keep real-valued items in few bytes without labels and without training a network.

All start from one space of images and texts, their canonical variates: `common_space`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.lab.experiments.compressed_items import Compressed, Rows, Views, binary_codes, faiss_vectors
from channelhash.models.fitted import CCA_RHO
from channelhash.models.linear_hashing import cca, itq_rotation, pca_itq, random_rotation
from channelhash.utils.seeds import derive_seed

#: Directions of the common space at most.
N_DIRECTIONS = 256
# Bytes of RaBitQ that are no bits: the factors of its estimate.
_RABITQ_FACTORS = 8


def common_space(features: Views, train: Rows) -> dict[str, NDArray[np.float64]]:
    """Project the features of two modalities into one space, by canonical correlations of the training rows.

    Returns:
        modality -> ``(n, d)``, d ≤ 256, centred on the training rows; directions by falling correlation, scaled by it.

    >>> features = np.random.default_rng(0).normal(size=(20, 4))
    >>> common_space({"image": features, "text": features[:, :3]}, np.arange(20))["image"].shape
    (20, 3)
    """
    views = {modality: values[train] for modality, values in features.items()}
    widths = [values.shape[1] for values in views.values()]
    maps = cca(views, min(*widths, N_DIRECTIONS), rho=CCA_RHO * sum(widths) / len(train))
    return {modality: maps[modality](values) for modality, values in features.items()}


def _sign(vectors: Views, train: Rows, n_bytes: int, seed: int) -> Compressed:
    """Keep the signs of a random rotation, of a tight frame for more bits than directions."""
    maps = random_rotation({name: values[train] for name, values in vectors.items()}, 8 * n_bytes, seed, one_space=True)
    return binary_codes({name: maps[name](values) for name, values in vectors.items()}, 8 * n_bytes)


def _itq(vectors: Views, train: Rows, n_bytes: int, seed: int) -> Compressed | None:
    """Keep the signs of ITQ's rotation of the principal components of both modalities."""
    if 8 * n_bytes > _width(vectors):
        return None
    maps = pca_itq({name: values[train] for name, values in vectors.items()}, 8 * n_bytes, seed, one_space=True)
    return binary_codes({name: maps[name](values) for name, values in vectors.items()}, 8 * n_bytes)


def _cca_itq(vectors: Views, train: Rows, n_bytes: int, seed: int) -> Compressed | None:
    """Keep the signs of ITQ's rotation of the leading canonical directions."""
    n_bits = 8 * n_bytes
    if n_bits > _width(vectors):
        return None
    leading = _leading(vectors, n_bits)
    rotation = itq_rotation(np.concatenate([values[train] for values in leading.values()]), seed, "cca")
    return binary_codes({name: values @ rotation for name, values in leading.items()}, n_bits)


def _rabitq(vectors: Views, train: Rows, n_bytes: int, seed: int) -> Compressed | None:
    """Keep RaBitQ (Gao and Long, SIGMOD 2024) of as many directions as fit, then with as many bits each as fit."""
    width = _width(vectors)
    n_directions = min(width, 8 * (n_bytes - _RABITQ_FACTORS))
    if n_directions < 1:
        return None
    leading = _leading(vectors, n_directions)
    maps = random_rotation(
        {name: values[train] for name, values in leading.items()}, n_directions, seed, one_space=True
    )
    rotated = {name: maps[name](values) for name, values in leading.items()}

    def make(faiss: Any) -> Any:
        sizes = (faiss.IndexRaBitQ(n_directions, faiss.METRIC_INNER_PRODUCT, n_bits) for n_bits in range(9, 0, -1))
        return next(index for index in sizes if index.sa_code_size() <= n_bytes)

    return faiss_vectors(rotated, train, make)


def _product_quantiser(vectors: Views, train: Rows, n_bytes: int, seed: int) -> Compressed | None:
    """Keep the product quantiser's 256 centroids a byte (Jégou, Douze and Schmid, TPAMI 2011)."""
    width = _width(vectors)
    if width % n_bytes:
        return None

    def make(faiss: Any) -> Any:
        index = faiss.IndexPQ(width, n_bytes, 8, faiss.METRIC_INNER_PRODUCT)
        index.pq.cp.min_points_per_centroid = 1  # fewer are no reason for a warning
        index.pq.cp.seed = derive_seed(seed, "product quantiser", n_bytes) % (1 << 31)
        return index

    return faiss_vectors(vectors, train, make)


def _int8(vectors: Views, train: Rows, n_bytes: int, seed: int) -> Compressed | None:
    """Keep a byte for each of the leading directions, with a range a direction."""
    if n_bytes > _width(vectors):
        return None
    return faiss_vectors(
        _leading(vectors, n_bytes),
        train,
        lambda faiss: faiss.IndexScalarQuantizer(n_bytes, faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT),
    )


def _float32(vectors: Views, train: Rows, n_bytes: int, seed: int) -> Compressed | None:
    """Keep four bytes for each of the leading directions."""
    if n_bytes // 4 not in range(1, _width(vectors) + 1):
        return None
    return faiss_vectors(_leading(vectors, n_bytes // 4), train, lambda faiss: faiss.IndexFlatIP(n_bytes // 4))


#: Method -> what it makes of vectors in one space ``(n, d)``, training rows, bytes an item and a seed; None where such
#: vectors do not fill so many bytes, or not fit into so few.
COMPRESSIONS: Mapping[str, Callable[[Views, Rows, int, int], Compressed | None]] = {
    "CCA-ITQ": _cca_itq,
    "ITQ": _itq,
    "sign": _sign,
    "RaBitQ": _rabitq,
    "product quantiser": _product_quantiser,
    "int8": _int8,
    "float32": _float32,
}


def _width(vectors: Views) -> int:
    return int(next(iter(vectors.values())).shape[1])


def _leading(vectors: Views, n: int) -> dict[str, NDArray[np.float64]]:
    return {modality: values[:, :n] for modality, values in vectors.items()}
