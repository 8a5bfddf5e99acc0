"""``fitted``: codes without labels and without training, from an encoder that stays as it is.

The head is an affine map in closed form (`linear_hashing`), fitted to features of a sample of the items: the sign of a
random rotation, ITQ, or CCA-ITQ where pairs of images and captions exist. An encoder whose features are codes already,
such as ``photo``, needs no fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.description import in_one_word
from channelhash.models.encoders import Encoder, open_encoder
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.heads import Standardize, UnitLength
from channelhash.utils.seeds import generator

_Array = NDArray[np.float64]
#: modality -> features ``(n, d)``, row i of each of sample i.
Features = Mapping[str, NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class _LinearMap:
    """x ↦ (x − mean) W.

    Attributes:
        mean: ``(d,)``.
        weights: W, ``(d, k)``.

    >>> _LinearMap(np.ones(2), np.eye(2))(np.array([[3.0, 1.0]])).tolist()
    [[2.0, 0.0]]
    """

    mean: _Array
    weights: _Array

    def __call__(self, features: NDArray[np.floating[Any]]) -> _Array:
        """Project ``(n, d)`` features to ``(n, k)``."""
        outputs: _Array = (np.asarray(features, dtype=np.float64) - self.mean) @ self.weights
        return outputs


def _random_rotation(features: NDArray[np.floating[Any]], n_bits: int, seed: int, name: str) -> _LinearMap:
    """Draw a random rotation of the centred features, cut to k directions; with more bits than features, a tight frame.

    W has orthonormal columns, or for k > d orthonormal rows, so that the outputs keep all lengths and angles.

    >>> weights = _random_rotation(np.eye(3), n_bits=8, seed=0, name="image").weights
    >>> bool(np.allclose(weights @ weights.T, np.eye(3)))
    True
    """
    values = np.asarray(features, dtype=np.float64)
    d = values.shape[1]
    drawn = generator(seed, "random rotation", name, n_bits).normal(size=(max(d, n_bits), min(d, n_bits)))
    orthonormal, _ = np.linalg.qr(drawn)
    return _LinearMap(values.mean(axis=0), orthonormal if n_bits <= d else orthonormal.T)


def _pca_itq(features: NDArray[np.floating[Any]], n_bits: int, seed: int, name: str) -> _LinearMap:
    """Fit PCA-ITQ (Gong et al., TPAMI 2013, § 3): the k leading principal components, rotated by `_itq_rotation`.

    With fewer features than bits, all components are rotated into all bits.

    >>> features = np.random.default_rng(0).normal(size=(20, 4))
    >>> _pca_itq(features, n_bits=2, seed=0, name="image")(features).shape
    (20, 2)
    """
    values = np.asarray(features, dtype=np.float64)
    mean = values.mean(axis=0)
    _, vectors = np.linalg.eigh(np.cov(values, rowvar=False).reshape(values.shape[1], -1))
    weights = _columns(vectors[:, ::-1], n_bits)  # eigenvalues rise
    rotation = _itq_rotation((values - mean) @ weights, seed, name)
    return _LinearMap(mean, weights @ rotation)


def _cca_itq(features: Features, n_bits: int, seed: int, rho: float = 1e-4) -> dict[str, _LinearMap]:
    """Fit CCA-ITQ (Gong et al., TPAMI 2013, § 5) with two modalities as the views: k canonical directions, each scaled
    by its correlation, and one rotation of both views together; ``rho`` as in `_cca`.

    >>> image = np.random.default_rng(0).normal(size=(20, 4))
    >>> maps = _cca_itq({"image": image, "text": 2 * image}, n_bits=2, seed=0)
    >>> bool(((maps["image"](image) >= 0) == (maps["text"](2 * image) >= 0)).all())
    True
    """
    maps = _cca(features, n_bits, rho)
    projected = np.concatenate([maps[name](values) for name, values in features.items()])
    rotation = _itq_rotation(projected, seed, "cca")
    return {name: _LinearMap(view.mean, view.weights @ rotation) for name, view in maps.items()}


def _cca(features: Features, n_dimensions: int, rho: float = 1e-4) -> dict[str, _LinearMap]:
    """Compute the regularised canonical correlation analysis of two modalities.

    >>> x = np.array([[0.0], [1.0], [2.0]])
    >>> maps = _cca({"image": x, "text": 2 * x}, n_dimensions=1)
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
        name: _LinearMap(mean, _columns(vectors, n_dimensions))
        for name, mean, vectors in zip(features, means, directions, strict=True)
    }


def _itq_rotation(projected: _Array, seed: int, name: str, iterations: int = 50) -> _Array:
    """Find a rotation R with small ‖B − VR‖_F, B = sgn(VR), by iterative quantisation (Gong et al., TPAMI 2013, § 3.2).

    >>> rotation = _itq_rotation(np.random.default_rng(0).normal(size=(20, 3)), seed=0, name="image")
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


def _columns(vectors: _Array, n: int) -> _Array:
    """Return the first ``n`` columns, padded with zeros."""
    columns = vectors[:, :n]
    return np.pad(columns, ((0, 0), (0, n - columns.shape[1])))


Codes = Literal["auto", "learned", "sign", "itq", "cca-itq"]

#: Code length of a new store.
N_BITS = 256
#: Fewest pairs of an image and its caption from which two spaces are joined.
MIN_PAIRS = 100
#: What photographs show, as people describe it. The mean of their embeddings stands for that of texts not yet known.
_PHRASES = (
    "a photo of a dog", "a cat on a sofa", "two people on a beach", "a man riding a bicycle",
    "a woman with a child", "a group of friends at a party", "a plate of food on a table", "a red car in a street",
    "a city at night", "mountains with snow", "a lake in the forest", "flowers in a garden", "a bird in a tree",
    "a horse in a field", "a train at the station", "a plane in the sky", "a boat on the water",
    "a bedroom with a window", "a kitchen", "children playing football", "a wedding",
    "a birthday cake with candles", "a sunset by the sea", "an old church", "a bridge over a river",
    "a portrait of a man", "a crowd at a concert", "a sign with text", "a laptop on a desk",
    "a close-up of a leaf", "skiing in winter", "a market with fruit",
)  # fmt: skip

#: ρ of the canonical correlations is this times the features of both sides over the pairs: docs/how-to/encoders.md.
_CCA_RHO = 3.0

_Features = Mapping[str, NDArray[np.float32]]


def create_fitted_model(
    train: Records,
    n_bits: int = N_BITS,
    encoder: str | dict[str, str] = "photo",
    codes: Codes = "auto",
    seed: int = 0,
) -> HashModel:
    """Create a model whose codes are fitted to ``train``; training it further starts from there.

    Args:
        train: items with their images and texts, or features with the encoder ``features``.
        n_bits: code length k.
        encoder: as in `encoders.open_encoder`.
        codes: see `fit_codes`.
        seed: of the fit.

    Raises:
        InputError: as `open_encoder` and `fit_codes`.

    >>> features = np.random.default_rng(0).normal(size=(20, 4))
    >>> train = Records(tuple(map(str, range(20))), {"image": features}, np.ones((20, 1), dtype=bool), ("any",))
    >>> create_fitted_model(train, 16, "features").encode("image", features).shape
    (20, 2)
    """
    opened = open_encoder(encoder, feature_widths(train))
    items = {modality: train.items[modality] for modality in opened.modalities if modality in train.items}
    features = {modality: opened.features(modality, values) for modality, values in items.items()}
    return fit_codes(opened, features, n_bits, codes, seed)


def feature_widths(records: Records) -> dict[str, int]:
    """Return modality -> number of features, where items are features already."""
    return {name: values.shape[1] for name, values in records.items.items() if isinstance(values, np.ndarray)}


def build_fitted_branches(
    n_bits: int,
    encoder: str,
    widths: dict[str, int],
    unit: bool = False,
    extractors: dict[str, str] | None = None,
    seen: dict[str, list[float]] | None = None,
    **origin: int | str,
) -> dict[str, Branch]:
    """Build the branches; the encoder's weights are loaded again."""
    return _branches(open_encoder(extractors or encoder, widths, seen), n_bits, widths, unit)


def fit_codes(
    encoder: Encoder, features: _Features, n_bits: int = N_BITS, codes: Codes = "auto", seed: int = 0
) -> HashModel:
    """Fit codes to features of a sample of items.

    ``auto`` is ``learned`` for an encoder with codes of its own that are long enough, ``cca-itq`` where the sides lie
    in different spaces and there are `MIN_PAIRS` pairs, else ``itq``, which is as good as ``sign`` for five items and
    better for more. Features of one space have unit length and share a
    map, but each modality is centred on its own mean: texts and images lie apart in such a space. Where texts are not
    given, their mean is that of `_PHRASES`.

    Args:
        encoder: computes the features of new items.
        features: modality -> ``(n, d)``; row i of each is of item i.
        n_bits: code length k; may exceed d.
        codes: how.
        seed: of random rotations.

    Returns:
        A model of those modalities whose codes can be compared: of sides in different spaces that no captions join,
        only the images'.

    Raises:
        InputError: ``n_bits`` or the number of items is too small, ``cca-itq`` lacks pairs, or the encoder has no
            ``learned`` codes of ``n_bits`` bits.
    """
    n_items = len(next(iter(features.values()), ()))
    if n_bits < 1:
        raise InputError(f"--bits {n_bits}: a code has at least 1 bit")
    chosen = _choose(encoder, features, n_items, n_bits, codes)
    if chosen != "cca-itq" and not encoder.one_space:
        features = dict([min(features.items())])  # "image" comes before "text"
    maps = _fit_maps(encoder, features, n_bits, chosen, seed)
    word, widths = encoder.word, {name: encoder.sides[name].width for name in maps}
    unit = encoder.one_space and chosen != "learned"
    branches = _branches(encoder, n_bits, widths, unit)
    with torch.no_grad():
        for name, branch in branches.items():
            fitted: Any = fitted_part(branch)
            _, standardize, linear = fitted
            standardize.mean.copy_(torch.from_numpy(maps[name].mean))
            linear.weight.copy_(torch.from_numpy(maps[name].weights.T))
    architecture: dict[str, Any] = dict(
        n_bits=n_bits,
        encoder=word if isinstance(word, str) else "extractors",
        codes=chosen,
        seed=seed,
        fitted_on=0 if chosen == "learned" else n_items,
        widths=widths,
        unit=unit,
    )
    if not isinstance(word, str):
        seen = {name: encoder.seen[name] for name in maps}
        architecture |= {"extractors": dict(word), "seen": seen}
    return HashModel("fitted", n_bits, architecture, branches).eval()


def fitted_part(branch: Branch) -> nn.Sequential:
    """Return what of a branch's head was fitted: it takes the features that `Encoder.features` gives."""
    head: nn.Sequential = branch.head[-3:]  # type: ignore[index]  # of a `fitted` model, as `_branches` makes it
    return head


def _choose(encoder: Encoder, features: _Features, n_items: int, n_bits: int, codes: Codes) -> str:
    """Return the method that ``codes`` stands for."""
    if codes == "learned" and n_bits > encoder.own_bits:
        reason = f"has {encoder.own_bits} bits of its own" if encoder.own_bits else "has no codes of its own"
        raise InputError(f"--codes learned: the encoder {in_one_word(encoder.word)} {reason}, not {n_bits}; take itq")
    if codes == "auto" and n_bits <= encoder.own_bits:
        return "learned"
    n_pairs = n_items if len(features) == 2 else 0
    if codes == "cca-itq" and n_pairs < 2:
        raise InputError("--codes cca-itq: needs images with captions (--captions FILE); there are none")
    if n_items < 1:
        raise InputError("there is no item to fit codes to; name a source")
    if codes != "auto":
        return codes
    if n_pairs >= MIN_PAIRS and not encoder.one_space:
        return "cca-itq"
    return "itq" if n_items > 1 else "sign"  # one item has no directions


def _fit_maps(encoder: Encoder, features: _Features, n_bits: int, chosen: str, seed: int) -> dict[str, _LinearMap]:
    """Return modality -> the map that `_choose` chose, from features to outputs."""
    if chosen == "learned":
        leading = np.eye(encoder.own_bits)[:, :n_bits]
        return {name: _LinearMap(np.zeros(encoder.own_bits), leading) for name in encoder.modalities}
    if chosen == "cca-itq":
        n_items = len(next(iter(features.values())))
        views = {name: _unit(values) if encoder.one_space else values for name, values in features.items()}
        n_features = sum(values.shape[1] for values in views.values())
        return _cca_itq(views, n_bits, seed, rho=_CCA_RHO * n_features / n_items)
    method = _random_rotation if chosen == "sign" else _pca_itq
    if not encoder.one_space:
        return {name: method(values, n_bits, seed, name) for name, values in features.items()}
    # One rotation for both modalities of the space, each around its own mean.
    views = {name: _unit(values) for name, values in features.items()}
    means = {name: values.mean(axis=0) for name, values in views.items()}
    shared = method(np.concatenate([values - means[name] for name, values in views.items()]), n_bits, seed, "all")
    if "text" in encoder.sides and "text" not in means:
        means["text"] = _unit(encoder.features("text", _PHRASES)).mean(axis=0)
    return {name: _LinearMap(mean, shared.weights) for name, mean in sorted(means.items())}


def _branches(encoder: Encoder, n_bits: int, widths: Mapping[str, int], unit: bool) -> dict[str, Branch]:
    branches = {}
    for modality, width in widths.items():
        side = encoder.sides[modality]
        scaled = UnitLength() if unit else nn.Identity()
        fitted = (scaled, Standardize(width), nn.Linear(width, n_bits, bias=False))
        learned = () if isinstance(side.head, nn.Identity) else (side.head,)
        branches[modality] = Branch(side.prepare, side.network, nn.Sequential(*learned, *fitted))
    return branches


def _unit(values: NDArray[np.float32]) -> NDArray[np.float64]:
    rows = np.asarray(values, dtype=np.float64)
    unit: NDArray[np.float64] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit
