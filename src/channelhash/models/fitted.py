"""``fitted``: codes without labels and without training, from an encoder that stays as it is.

The head is an affine map in closed form (`linear_hashing`), fitted to features of a sample of the items: the sign of a
random rotation, ITQ, or CCA-ITQ where pairs of images and captions exist. An encoder whose features are codes already,
such as ``photo``, needs no fit.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from channelhash.data.records import Records
from channelhash.errors import InputError
from channelhash.models.cliphash import UnitLength
from channelhash.models.description import in_one_word
from channelhash.models.encoders import Encoder, open_encoder
from channelhash.models.feature_heads import Standardize
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.linear_hashing import LinearMap, cca_itq, pca_itq, random_rotation
from channelhash.utils.typed_settings import read_fields

Codes = Literal["auto", "learned", "sign", "itq", "cca-itq"]

#: Code length of a new store.
N_BITS = 256
#: Fewest pairs of an image and its caption from which two spaces are joined.
MIN_PAIRS = 100
#: What photographs show, as people describe it. The mean of their embeddings stands for that of texts not yet known.
PHRASES = (
    "a photo of a dog",
    "a cat on a sofa",
    "two people on a beach",
    "a man riding a bicycle",
    "a woman with a child",
    "a group of friends at a party",
    "a plate of food on a table",
    "a red car in a street",
    "a city at night",
    "mountains with snow",
    "a lake in the forest",
    "flowers in a garden",
    "a bird in a tree",
    "a horse in a field",
    "a train at the station",
    "a plane in the sky",
    "a boat on the water",
    "a bedroom with a window",
    "a kitchen",
    "children playing football",
    "a wedding",
    "a birthday cake with candles",
    "a sunset by the sea",
    "an old church",
    "a bridge over a river",
    "a portrait of a man",
    "a crowd at a concert",
    "a sign with text",
    "a laptop on a desk",
    "a close-up of a leaf",
    "skiing in winter",
    "a market with fruit",
)

#: ρ of the canonical correlations is this times the features of both sides over the pairs: docs/how-to/encoders.md.
CCA_RHO = 3.0

_Features = Mapping[str, NDArray[np.float32]]


class FittedArchitecture(NamedTuple):
    """The complete architecture, as saved in a model's ``config.json``.

    Attributes:
        n_bits: code length k.
        encoder: the encoder's word; ``extractors`` if those are named.
        codes: how the head was fitted: ``sign``, ``itq`` or ``cca-itq``; ``learned`` takes the encoder's own.
        seed: of the fit.
        fitted_on: number of items, or pairs, that the head was fitted to; 0 of ``learned`` codes.
        widths: modality -> number of features.
        unit: features are scaled to unit length first.
        extractors: modality -> ``KIND:WHAT``, also of a side that is left out.
        seen: modality -> what its extractor made of a fixed item, see `encoders.look_at_probe`.
    """

    n_bits: int
    encoder: str
    codes: str
    seed: int
    fitted_on: int
    widths: dict[str, int]
    unit: bool = False
    extractors: dict[str, str] | None = None
    seen: dict[str, list[float]] | None = None


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


def build_fitted_branches(**architecture: Any) -> dict[str, Branch]:
    """Build the branches from the fields of `FittedArchitecture`; the encoder's weights are loaded again."""
    parts = read_fields(FittedArchitecture, architecture, "architecture")
    encoder = open_encoder(parts.extractors or parts.encoder, parts.widths, parts.seen)
    return _branches(encoder, parts)


def fit_codes(
    encoder: Encoder, features: _Features, n_bits: int = N_BITS, codes: Codes = "auto", seed: int = 0
) -> HashModel:
    """Fit codes to features of a sample of items.

    ``auto`` is ``learned`` for an encoder with codes of its own that are long enough, ``cca-itq`` where the sides lie
    in different spaces and there are `MIN_PAIRS` pairs, else ``itq``, which is as good as ``sign`` for five items and
    better for more. Features of one space have unit length and share a
    map, but each modality is centred on its own mean: texts and images lie apart in such a space. Where texts are not
    given, their mean is that of `PHRASES`.

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
    extractors = None if isinstance(encoder.word, str) else dict(encoder.word)
    parts = FittedArchitecture(
        n_bits=n_bits,
        encoder=encoder.word if isinstance(encoder.word, str) else "extractors",
        codes=chosen,
        seed=seed,
        fitted_on=0 if chosen == "learned" else n_items,
        widths={name: encoder.sides[name].width for name in maps},
        unit=encoder.one_space and chosen != "learned",
        extractors=extractors,
        seen={name: values for name, values in encoder.seen.items() if name in maps} or None,
    )
    branches = _branches(encoder, parts)
    with torch.no_grad():
        for name, branch in branches.items():
            fitted: Any = fitted_part(branch)
            _, standardize, linear = fitted
            standardize.mean.copy_(torch.from_numpy(maps[name].mean))
            linear.weight.copy_(torch.from_numpy(maps[name].weights.T))
    architecture = {key: value for key, value in parts._asdict().items() if value is not None}
    return HashModel("fitted", n_bits, architecture, branches).eval()


def fitted_part(branch: Branch) -> nn.Sequential:
    """Return what of a branch's head was fitted: it takes the features that `Encoder.features` gives."""
    head: nn.Sequential = branch.head[-3:]  # type: ignore[index]  # of a `fitted` model, as `_branches` makes it
    return head


def _choose(encoder: Encoder, features: _Features, n_items: int, n_bits: int, codes: Codes) -> str:
    """Return the method that ``codes`` stands for."""
    if codes == "learned" and n_bits > encoder.own_bits:
        own = f"has {encoder.own_bits} bits of its own" if encoder.own_bits else "has no codes of its own"
        raise InputError(f"--codes learned: the encoder {in_one_word(encoder.word)} {own}, not {n_bits}; take itq")
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


def _fit_maps(encoder: Encoder, features: _Features, n_bits: int, chosen: str, seed: int) -> dict[str, LinearMap]:
    """Return modality -> the map that `_choose` chose, from features to outputs."""
    if chosen == "learned":
        leading = np.eye(encoder.own_bits)[:, :n_bits]
        return {name: LinearMap(np.zeros(encoder.own_bits), leading) for name in encoder.modalities}
    if chosen == "cca-itq":
        n_items = len(next(iter(features.values())))
        views = {name: _unit(values) if encoder.one_space else values for name, values in features.items()}
        n_features = sum(values.shape[1] for values in views.values())
        return cca_itq(views, n_bits, seed, rho=CCA_RHO * n_features / n_items)
    if encoder.one_space:
        return _fit_shared(encoder, features, n_bits, chosen, seed)
    return _METHODS[chosen](features, n_bits, seed)


def _fit_shared(encoder: Encoder, features: _Features, n_bits: int, method: str, seed: int) -> dict[str, LinearMap]:
    """Fit one rotation for both modalities of a space, each around its own mean."""
    views = {name: _unit(values) for name, values in features.items()}
    means = {name: values.mean(axis=0) for name, values in views.items()}
    centred = {name: values - means[name] for name, values in views.items()}
    shared = _METHODS[method](centred, n_bits, seed, one_space=True)
    if "text" in encoder.sides and "text" not in means:
        means["text"] = _unit(encoder.features("text", PHRASES)).mean(axis=0)
    weights = next(iter(shared.values())).weights
    return {name: LinearMap(mean, weights) for name, mean in sorted(means.items())}


def _branches(encoder: Encoder, parts: FittedArchitecture) -> dict[str, Branch]:
    branches = {}
    for modality, width in parts.widths.items():
        side = encoder.sides[modality]
        unit = UnitLength() if parts.unit else nn.Identity()
        fitted = (unit, Standardize(width), nn.Linear(width, parts.n_bits, bias=False))
        learned = () if isinstance(side.head, nn.Identity) else (side.head,)
        branches[modality] = Branch(side.prepare, side.network, nn.Sequential(*learned, *fitted))
    return branches


def _unit(values: NDArray[np.float32]) -> NDArray[np.float64]:
    rows = np.asarray(values, dtype=np.float64)
    unit: NDArray[np.float64] = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    return unit


_METHODS: dict[str, Callable[..., dict[str, LinearMap]]] = {"sign": random_rotation, "itq": pca_itq}
