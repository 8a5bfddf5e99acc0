"""Linear hash functions in closed form: random rotations, PCA-ITQ and CCA-ITQ.

Each is a function of training features and gives a `LinearMap` a modality; a code is the sign of its outputs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.utils.seeds import generator

Array = NDArray[np.float64]
#: modality -> features ``(n, d)``, row i of each of sample i.
Features = Mapping[str, NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class LinearMap:
    """x ↦ (x − mean) W.

    Attributes:
        mean: ``(d,)``.
        weights: W, ``(d, k)``.

    >>> LinearMap(np.ones(2), np.eye(2))(np.array([[3.0, 1.0]])).tolist()
    [[2.0, 0.0]]
    """

    mean: Array
    weights: Array

    def __call__(self, features: NDArray[np.floating[Any]]) -> Array:
        """Project ``(n, d)`` features to ``(n, k)``."""
        outputs: Array = (np.asarray(features, dtype=np.float64) - self.mean) @ self.weights
        return outputs


def random_rotation(features: Features, n_bits: int, seed: int, one_space: bool = False) -> dict[str, LinearMap]:
    """Draw a random rotation of the centred features, cut to k directions; with more bits than features, a tight frame.

    W has orthonormal columns, or for k > d orthonormal rows, so that the outputs keep all lengths and angles.

    Args:
        features: training features.
        n_bits: code length k.
        seed: of the rotation.
        one_space: the features of all modalities lie in one space and share a map. Otherwise each has a map, and codes
            of different modalities are unrelated.

    >>> weights = random_rotation({"image": np.eye(3)}, n_bits=8, seed=0)["image"].weights
    >>> bool(np.allclose(weights @ weights.T, np.eye(3)))
    True
    """

    def fit(name: str, values: Array) -> LinearMap:
        d = values.shape[1]
        drawn = generator(seed, "random rotation", name, n_bits).normal(size=(max(d, n_bits), min(d, n_bits)))
        orthonormal, _ = np.linalg.qr(drawn)
        return LinearMap(values.mean(axis=0), orthonormal if n_bits <= d else orthonormal.T)

    return _each(features, one_space, fit)


def pca_itq(features: Features, n_bits: int, seed: int, one_space: bool = False) -> dict[str, LinearMap]:
    """Fit PCA-ITQ (Gong et al., TPAMI 2013, § 3): the k leading principal components, rotated by `itq_rotation`.

    Arguments as in `random_rotation`. With fewer features than bits, all components are rotated into all bits.

    >>> features = np.random.default_rng(0).normal(size=(20, 4))
    >>> pca_itq({"image": features}, n_bits=2, seed=0)["image"](features).shape
    (20, 2)
    """

    def fit(name: str, values: Array) -> LinearMap:
        mean = values.mean(axis=0)
        _, vectors = np.linalg.eigh(np.cov(values, rowvar=False).reshape(values.shape[1], -1))
        weights = _columns(vectors[:, ::-1], n_bits)  # eigenvalues rise
        rotation = itq_rotation((values - mean) @ weights, seed, name)
        return LinearMap(mean, weights @ rotation)

    return _each(features, one_space, fit)


def cca_itq(features: Features, n_bits: int, seed: int, rho: float = 1e-4) -> dict[str, LinearMap]:
    """Fit CCA-ITQ (Gong et al., TPAMI 2013, § 5) with two modalities as the views: k canonical directions, each scaled
    by its correlation, and one rotation of both views together; ``rho`` as in `cca`.

    Raises:
        ValueError: there are not two modalities.

    >>> image = np.random.default_rng(0).normal(size=(20, 4))
    >>> maps = cca_itq({"image": image, "text": 2 * image}, n_bits=2, seed=0)
    >>> bool(((maps["image"](image) >= 0) == (maps["text"](2 * image) >= 0)).all())
    True
    """
    maps = cca(features, n_bits, rho)
    projected = np.concatenate([maps[name](values) for name, values in features.items()])
    rotation = itq_rotation(projected, seed, "cca")
    return {name: LinearMap(view.mean, view.weights @ rotation) for name, view in maps.items()}


def cca(features: Features, n_dimensions: int, rho: float = 1e-4) -> dict[str, LinearMap]:
    """Compute the regularised canonical correlation analysis of two modalities.

    Args:
        features: training features of two modalities.
        n_dimensions: canonical directions; zeros where there are fewer.
        rho: added to the variances, in units of their mean; the paper adds 1e-4.

    Returns:
        Maps into the common space, its directions by falling correlation and scaled by it.

    Raises:
        ValueError: there are not two modalities.

    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> maps = cca({"image": x, "text": 2 * x}, n_dimensions=1)
    >>> abs(maps["image"](x)).round(2).tolist()
    [[1.22], [0.0], [1.22]]
    """
    from scipy.linalg import solve_triangular

    if len(features) != 2:
        raise ValueError(f"canonical correlations are of two modalities, not of {', '.join(features)}")
    views = [np.asarray(values, dtype=np.float64) for values in features.values()]
    means = [values.mean(axis=0) for values in views]
    centred = [values - mean for values, mean in zip(views, means, strict=True)]
    n = len(centred[0])
    roots = []
    for values in centred:
        variances = values.T @ values / n
        regularised = variances + rho * np.trace(variances) / len(variances) * np.eye(len(variances))
        roots.append(np.linalg.cholesky(regularised))
    cross = centred[0].T @ centred[1] / n
    whitened = solve_triangular(roots[1], solve_triangular(roots[0], cross, lower=True).T, lower=True).T
    left, correlations, right = np.linalg.svd(whitened, full_matrices=False)
    directions = [
        solve_triangular(root, vectors * correlations, lower=True, trans="T")
        for root, vectors in zip(roots, (left, right.T), strict=True)
    ]
    return {
        name: LinearMap(mean, _columns(vectors, n_dimensions))
        for name, mean, vectors in zip(features, means, directions, strict=True)
    }


def itq_rotation(projected: Array, seed: int, name: str, iterations: int = 50) -> Array:
    """Find a rotation R with small ‖B − VR‖_F, B = sgn(VR), by iterative quantisation (Gong et al., TPAMI 2013, § 3.2).

    Args:
        projected: V, ``(n, k)``, centred.
        seed: of the initial random rotation.
        name: what is rotated; each name has a stream of random numbers.
        iterations: the paper's 50.

    Returns:
        ``(k, k)``, orthogonal.

    >>> rotation = itq_rotation(np.random.default_rng(0).normal(size=(20, 3)), seed=0, name="image")
    >>> bool(np.allclose(rotation @ rotation.T, np.eye(3)))
    True
    """
    k = projected.shape[1]
    rotation, _ = np.linalg.qr(generator(seed, "itq", name, k).normal(size=(k, k)))
    for _ in range(iterations):
        bits = np.where(projected @ rotation >= 0, 1.0, -1.0)
        left, _, right = np.linalg.svd(projected.T @ bits)
        rotation = left @ right
    return rotation


def _each(features: Features, one_space: bool, fit: Callable[[str, Array], LinearMap]) -> dict[str, LinearMap]:
    """Fit a map for each modality, or one for all rows of all modalities."""
    views = {name: np.asarray(values, dtype=np.float64) for name, values in features.items()}
    if one_space:
        shared = fit("all", np.concatenate(list(views.values())))
        return dict.fromkeys(views, shared)
    return {name: fit(name, values) for name, values in views.items()}


def _columns(vectors: Array, n: int) -> Array:
    """Return the first ``n`` columns, padded with zeros."""
    kept = vectors[:, :n]
    return np.pad(kept, ((0, 0), (0, n - kept.shape[1])))
