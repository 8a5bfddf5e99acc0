"""Affine maps to codes in closed form: random rotation, PCA-ITQ, CCA-ITQ of two modalities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from channelhash.utils.seeds import generator

_Doubles = NDArray[np.float64]
#: Features ``(n, d)``.
FeatureMatrix = NDArray[np.floating[Any]]
#: modality -> features ``(n, d)``, row i of each of item i.
FeaturesByModality = Mapping[str, FeatureMatrix]


@dataclass(frozen=True)
class LinearMap:
    """x ↦ (x − mean) W.

    Attributes:
        mean: ``(d,)``.
        weights: W, ``(d, k)``.

    >>> LinearMap(np.ones(2), np.eye(2))(np.array([[3.0, 1.0]])).tolist()
    [[2.0, 0.0]]
    """

    mean: _Doubles
    weights: _Doubles

    def __call__(self, features: FeatureMatrix) -> _Doubles:
        """Project ``(n, d)`` features to ``(n, k)``."""
        return (np.asarray(features, dtype=np.float64) - self.mean) @ self.weights


def random_rotation(features: FeatureMatrix, n_bits: int, seed: int, name: str) -> LinearMap:
    """Draw a random rotation of the centred features, cut to k directions; with more bits than
    features, a tight frame.

    W has orthonormal columns, or for k > d orthonormal rows, so that the outputs keep all lengths
    and angles.

    >>> weights = random_rotation(np.eye(3), n_bits=8, seed=0, name="image").weights
    >>> bool(np.allclose(weights @ weights.T, np.eye(3)))
    True
    """
    values = np.asarray(features, dtype=np.float64)
    d = values.shape[1]
    drawn = generator(seed, "random rotation", name, n_bits).normal(
        size=(max(d, n_bits), min(d, n_bits))
    )
    orthonormal, _ = np.linalg.qr(drawn)
    return LinearMap(values.mean(axis=0), orthonormal if n_bits <= d else orthonormal.T)


def pca_itq(features: FeatureMatrix, n_bits: int, seed: int, name: str) -> LinearMap:
    """Fit PCA-ITQ (Gong et al., TPAMI 2013, § 3): the k leading principal components, rotated by
    `_itq_rotation`.

    With fewer features than bits, all components are rotated into all bits.

    >>> features = np.random.default_rng(0).normal(size=(20, 4))
    >>> pca_itq(features, n_bits=2, seed=0, name="image")(features).shape
    (20, 2)
    """
    values = np.asarray(features, dtype=np.float64)
    mean = values.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(values, rowvar=False).reshape(values.shape[1], -1))
    weights = _columns(vectors[:, ::-1], n_bits)  # eigenvalues rise
    return LinearMap(mean, weights @ _itq_rotation((values - mean) @ weights, seed, name))


def cca_itq(
    features: FeaturesByModality, n_bits: int, seed: int, rho: float = 1e-4
) -> dict[str, LinearMap]:
    """Fit CCA-ITQ (Gong et al., TPAMI 2013, § 5) with two modalities as the views: k canonical
    directions, each scaled by its correlation, and one rotation of both views together; ``rho`` as
    in `_cca`.

    >>> image = np.random.default_rng(0).normal(size=(20, 4))
    >>> maps = cca_itq({"image": image, "text": 2 * image}, n_bits=2, seed=0)
    >>> bool(((maps["image"](image) >= 0) == (maps["text"](2 * image) >= 0)).all())
    True
    """
    maps = _cca(features, n_bits, rho)
    projected = np.concatenate([maps[name](values) for name, values in features.items()])
    rotation = _itq_rotation(projected, seed, "cca")
    return {name: LinearMap(view.mean, view.weights @ rotation) for name, view in maps.items()}


def _cca(
    features: FeaturesByModality, n_dimensions: int, rho: float = 1e-4
) -> dict[str, LinearMap]:
    """Compute the regularised canonical correlation analysis of two modalities.

    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> maps = _cca({"image": x, "text": 2 * x}, n_dimensions=1)
    >>> abs(maps["image"](x)).round(2).tolist()
    [[1.22], [0.0], [1.22]]
    """
    views = [np.asarray(values, dtype=np.float64) for values in features.values()]
    means = [values.mean(axis=0) for values in views]
    centred = [values - mean for values, mean in zip(views, means, strict=True)]
    n = len(centred[0])
    roots = []
    for values in centred:
        variances = values.T @ values / n
        regularised = variances + rho * np.trace(variances) / len(variances) * np.eye(
            len(variances)
        )
        roots.append(np.linalg.cholesky(regularised))
    cross = centred[0].T @ centred[1] / n
    whitened = np.linalg.solve(roots[1], np.linalg.solve(roots[0], cross).T).T
    left, correlations, right = np.linalg.svd(whitened, full_matrices=False)
    sides = zip(features, means, roots, (left * correlations, right.T * correlations), strict=True)
    return {
        name: LinearMap(mean, _columns(np.linalg.solve(root.T, vectors), n_dimensions))
        for name, mean, root, vectors in sides
    }


def _itq_rotation(projected: _Doubles, seed: int, name: str, iterations: int = 50) -> _Doubles:
    """Find a rotation R with small ‖B − VR‖_F, B = sgn(VR), by iterative quantisation (Gong et al.,
    TPAMI 2013, § 3.2).

    >>> projected = np.random.default_rng(0).normal(size=(20, 3))
    >>> rotation = _itq_rotation(projected, seed=0, name="image")
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


def _columns(vectors: _Doubles, n: int) -> _Doubles:
    """Return the first ``n`` columns, padded with zeros."""
    columns = vectors[:, :n]
    return np.pad(columns, ((0, 0), (0, n - columns.shape[1])))
