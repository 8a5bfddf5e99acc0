"""``fitted``: codes without labels or training, from an encoder that never changes.

The head is an affine map in closed form, fitted to features of a sample of the items: the sign of a
random rotation, ITQ, or CCA-ITQ where pairs of images and captions exist. An encoder whose features
are codes already, such as ``photo``, needs no fit. Nothing here needs PyTorch, unless the encoder
does.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import unit_rows
from channelhash.codes.hubs import Bank
from channelhash.codes.quantizer import Quantizer
from channelhash.codes.stage import Stage
from channelhash.data.records import QUESTION, VECTOR, Features, RawItems, Records
from channelhash.errors import InputError, argument
from channelhash.models import description
from channelhash.models.encoders import Encoder, open_encoder
from channelhash.models.extractors import FeatureRows
from channelhash.models.linear_maps import (
    FeatureMatrix,
    FeaturesByModality,
    LinearMap,
    cca_itq,
    pca_itq,
    random_rotation,
)
from channelhash.models.photo import CAPTIONS, TEMPERATURE, Head, read_bank
from channelhash.utils.files import write_text
from channelhash.utils.image_files import PREPROCESSING
from channelhash.utils.machine import one_blas_thread

Codes = Literal["auto", "learned", "sign", "itq", "cca-itq"]
#: Fits a map to features ``(n, d)``, by code length, seed and name.
Fit = Callable[[FeatureMatrix, int, int, str], LinearMap]

#: Code length of a new store.
N_BITS = 256
#: Fewest pairs of an image and its caption from which two spaces are joined.
MIN_PAIRS = 100
#: What photographs show, as people describe it. The mean of their embeddings stands for that of
#: texts not yet known.
_PHRASES = Path(__file__).with_name("phrases.txt")
#: ρ of the canonical correlations is this times the features of both sides over the pairs:
#: docs/how-to/encoders.md.
_CCA_RHO = 3.0
#: Bytes of the features that are kept beside a code, at most, besides their scale.
_MOST_BYTES = 252
#: T of a bank is this times the standard deviation of similarities: what was best for ``photo``.
_TEMPERATURE = 0.35
#: Name of the weights of quantizers.
_SECOND = "second"


def feature_widths(records: Records) -> dict[str, int]:
    """Return modality -> number of features, where items are features already."""
    return {
        name: values.shape[1]
        for name, values in records.items.items()
        if isinstance(values, Features)
    }


class FittedModel(description.Model):
    """An encoder and the maps that were fitted to its features. It is used like a `HashModel`,
    without being one.

    Args:
        encoder: computes the features.
        architecture: the settings of `fit_codes`, JSON-able; saved in ``config.json``.
        maps: modality -> from features to the outputs of codes; empty where the encoder's features
            are the outputs. That of `QUESTION` leads to vectors, as which questions are then asked.
        quantizers: modality -> how a store keeps features beside codes; empty where it keeps the
            outputs of codes.

    >>> features = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
    >>> model = fit_codes(open_encoder("features", {"image": 4}), {"image": features}, n_bits=16)
    >>> model.modalities, model.encode("image", features).shape
    (('image',), (20, 2))
    """

    name = "fitted"
    not_finite = "the output is not finite; the weights are damaged, fit again"

    def __init__(
        self,
        encoder: Encoder,
        architecture: dict[str, Any],
        maps: Mapping[str, LinearMap],
        quantizers: Mapping[str, Quantizer] | None = None,
    ) -> None:
        self.encoder = encoder
        self.architecture = architecture
        self.maps = maps
        self.n_bits = architecture["n_bits"]
        similarity = architecture.get("similarity", "cosine")
        self._stage = Stage(self.n_bits, quantizers or {}, similarity)
        self._fingerprint = description.fingerprint_of(self._description(), self._weights())

    @property
    def modalities(self) -> tuple[str, ...]:
        """Modalities that it encodes."""
        return tuple(self.architecture["widths"])

    @property
    def stage(self) -> Stage:
        """How a store keeps vectors of its items beside their codes."""
        return self._stage

    def corrected_stage(self, captions: Sequence[str] = ()) -> Stage:
        """Return the stage with a bank of everyday captions, which ``captions`` of some images
        join, if texts find images in a space of the encoder's own. Only ``photo`` ships what it
        makes of the everyday ones.
        """
        if not self._takes_bank():
            return self._stage
        if self.encoder.word == "photo":
            features = read_bank()
        else:
            features = self.encoder.features("text", CAPTIONS.read_text("utf-8").splitlines())
        features = np.vstack([features, self.encoder.features("text", captions)])
        vectors = self._stage.vectors(self.project("text", features))
        return replace(
            self._stage, bank=Bank(vectors.astype(np.float16), self._temperature(vectors))
        )

    def _takes_bank(self) -> bool:
        """Return whether texts find images by vectors of one space, whose spread is known."""
        has_both = {"image", "text"} <= set(self.modalities)
        is_raw = not self.takes_rows("image") and not self.takes_rows("text")
        is_known = bool(self._stage.quantizers) or (self.encoder.word == "photo" and not self.maps)
        return self.encoder.one_space and has_both and is_raw and is_known

    def _temperature(self, bank: NDArray[np.float32]) -> float:
        """Return T: by how much the similarities of images and a bank's texts vary."""
        quantizer = self._stage.quantizers.get("image")
        if quantizer is None:
            return TEMPERATURE
        variances = np.square(bank @ quantizer.rotation) @ np.square(quantizer.spread)
        return _TEMPERATURE * float(np.sqrt(variances.mean() + (bank @ quantizer.mean).var()))

    def prepare(self, modality: str, items: RawItems) -> NDArray[Any]:
        """Prepare raw items (images, strings, or rows of features) as inputs of the encoder."""
        if modality not in self.modalities:
            raise InputError(f"this model encodes {', '.join(self.modalities)}, not {modality}")
        return cast(NDArray[Any], self.encoder.sides[modality].prepare.arrays(items))

    def takes_rows(self, modality: str) -> bool:
        """Return whether the items of a modality may be rows of features."""
        side = self.encoder.sides.get(modality)
        return side is not None and isinstance(side.prepare, FeatureRows)

    def project(self, modality: str, features: FeatureMatrix) -> NDArray[np.float32]:
        """Compute outputs of features ``(n, d)`` of the encoder: the ``k`` of codes, then the
        vectors that the stage keeps, if it keeps features.
        """
        if modality == QUESTION:
            return self.project(VECTOR, self.maps[QUESTION](unit_rows(features)))
        if modality not in self.maps:
            return features[:, : self.n_bits]
        fitted = self.maps[modality]
        rows = unit_rows(features) if self.architecture["unit"] else features
        rows = np.asarray(rows, np.float32)
        outputs = fitted(rows).astype(np.float32)
        if not self._stage.quantizers:
            return outputs
        if self.architecture["centred"]:
            rows = rows - fitted.mean.astype(np.float32)
        return np.hstack([outputs, rows])

    def outputs_prepared(
        self, inputs: Mapping[str, NDArray[Any]]
    ) -> dict[str, NDArray[np.float32]]:
        """Compute outputs, as `project` does, of inputs that `prepare` returned."""
        with one_blas_thread():
            return {
                name: self.project(name, self.encoder.sides[name].features(rows))
                for name, rows in inputs.items()
            }

    def fingerprint(self) -> str:
        """Hash encoder and weights; see `HashModel.fingerprint`."""
        return self._fingerprint

    def _description(self) -> dict[str, Any]:
        identities = {name: dict(self.encoder.sides[name].identity) for name in self.modalities}
        config = {"name": self.name, "n_bits": self.n_bits, "architecture": self.architecture}
        config["backbones"] = {name: identity for name, identity in identities.items() if identity}
        return config | ({"preprocessing": PREPROCESSING} if "image" in self.modalities else {})

    def _weights(self) -> dict[str, NDArray[Any]]:
        weights: dict[str, NDArray[Any]] = {}
        for modality in self.modalities:
            head = self.encoder.sides[modality].head
            if head:
                weights |= {
                    f"{modality}.head.{name}": values for name, values in head.weights.items()
                }
            if modality in self.maps:
                weights |= {
                    f"{modality}.map.{name}": values
                    for name, values in vars(self.maps[modality]).items()
                }
            if modality in self._stage.quantizers:
                weights |= {
                    f"{modality}.{_SECOND}.{name}": values
                    for name, values in self._stage.quantizers[modality].arrays().items()
                }
        return weights

    def save_pretrained(self, folder: Path) -> None:
        """Write ``config.json``, ``model.safetensors`` and a card; the encoder's networks are not
        saved.
        """
        from safetensors.numpy import save

        weights = {name: np.ascontiguousarray(values) for name, values in self._weights().items()}
        description.write_model(folder, save, weights, self._description())
        n_weights = sum(values.size for values in weights.values())
        card = description.model_card(
            self.name, self.n_bits, self.modalities, n_weights, self.fingerprint()
        )
        write_text(folder / "README.md", card)

    @classmethod
    def from_encoder(cls, encoder: Encoder) -> "FittedModel":
        """Return an encoder as a model whose outputs are its features.

        >>> model = FittedModel.from_encoder(open_encoder("features", {"image": 2}))
        >>> model.outputs("image", np.ones((1, 2))).tolist()
        [[1.0, 1.0]]
        """
        widths = {name: side.width for name, side in encoder.sides.items()}
        return cls(encoder, {"n_bits": max(widths.values(), default=0), "widths": widths}, {})

    @classmethod
    def load(cls, folder: Path, trust_code: bool = False) -> "FittedModel":
        """Read a saved model. Its encoder has to be installed, with the same weights."""
        return cls._load(folder, trust_code)

    @classmethod
    def _build(cls, config: dict[str, Any], folder: Path) -> "FittedModel":
        form = dict(config["architecture"])
        encoder = open_encoder(
            form.get("extractors") or form["encoder"], form["widths"], form.get("seen")
        )
        arrays = description.read_arrays(folder / "model.safetensors")
        heads = Head.read_all(arrays)
        sides = {name: side._replace(head=heads.get(name)) for name, side in encoder.sides.items()}
        maps = {}
        quantizers = {}
        for name in form["widths"]:
            if f"{name}.map.mean" in arrays:
                maps[name] = LinearMap(**_arrays_of(arrays, f"{name}.map."))
            if f"{name}.{_SECOND}.mean" in arrays:
                quantizers[name] = Quantizer.from_arrays(_arrays_of(arrays, f"{name}.{_SECOND}."))
        for name, saved in config["backbones"].items():
            side = dict(sides[name].identity)
            if saved != side:
                raise InputError(
                    f"{folder / 'config.json'}: fitted to {saved['name']} with weights "
                    f"{saved['weights']}, but here are {side['name']} with {side['weights']}; give "
                    "the same weights, or make it again"
                )
        return cls(replace(encoder, sides=sides), form, maps, quantizers)


def _arrays_of(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    """Return the arrays whose names begin with a prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): values
        for name, values in arrays.items()
        if name.startswith(prefix)
    }


def fit_codes(
    encoder: Encoder,
    features: FeaturesByModality,
    n_bits: int = N_BITS,
    codes: Codes = "auto",
    seed: int = 0,
    learn: Fit | None = None,
) -> FittedModel:
    """Fit codes to features of a sample of items.

    ``auto`` is ``learned`` for an encoder with codes of its own that are long enough, ``cca-itq``
    where the sides lie in different spaces and there are `MIN_PAIRS` pairs, else ``itq``, which is
    as good as ``sign`` for five items and better for more. ``learned`` codes of an encoder without
    codes of its own are learned from the items. Features get unit length first, but for
    ``cca-itq`` of different spaces. Those of one space share a map, but each modality is centred on
    its own mean, because texts and images lie apart in such a space. Without texts, the mean of
    texts is that of `_PHRASES`; where items are vectors, texts become such vectors and share their
    mean.

    Args:
        encoder: computes the features of new items.
        features: modality -> ``(n, d)``; row i of each is of item i.
        n_bits: code length k; may exceed d.
        codes: the method.
        seed: of random rotations.
        learn: fits ``learned`` codes, for an encoder without its own.

    Returns:
        A model of those modalities whose codes can be compared. If the sides lie in different
        spaces that no captions join, these are images alone.

    Raises:
        InputError: ``n_bits`` or the number of items is too small, ``cca-itq`` lacks pairs, or the
            encoder has no ``learned`` codes of ``n_bits`` bits.
    """
    n_items = len(next(iter(features.values()), ()))
    if n_bits < 1:
        raise InputError(f"{argument('bits')} {n_bits}: a code has at least 1 bit")
    method = _resolve_method(encoder, features, n_items, n_bits, codes)
    if method != "cca-itq" and not encoder.one_space:
        features = dict([min(features.items())])  # "image" comes before "text"
    fit = {"sign": random_rotation, "learned": learn}.get(method, pca_itq)
    maps = _fit_maps(encoder, features, n_bits, method, seed, fit)
    architecture = _describe_fit(encoder, maps, n_bits, method, seed, n_items)
    quantizers = {}
    if maps and method != "cca-itq":  # others compare their outputs
        quantizers = _fit_quantizers(features, maps, seed)
    return FittedModel(encoder, architecture, maps, quantizers)


def need_items(encoder: Encoder, n_bits: int = N_BITS, codes: Codes = "auto") -> bool:
    """Return whether codes are fitted to items, and not those that an encoder has of its own.

    >>> need_items(open_encoder("features", {"image": 2}))
    True
    """
    if codes == "auto":
        return n_bits > encoder.own_bits
    return codes != "learned" or not encoder.own_bits


def _resolve_method(
    encoder: Encoder, features: FeaturesByModality, n_items: int, n_bits: int, codes: Codes
) -> Codes:
    """Return ``codes``, with ``auto`` resolved; raise `InputError` if encoder or items do not allow
    it.
    """
    if not need_items(encoder, n_bits, codes):
        _check_own_codes(encoder, n_bits)
        return "learned"
    n_pairs = n_items if len(features) == 2 else 0
    if codes == "cca-itq" and n_pairs < 2:
        raise InputError(
            f"{argument('codes')} cca-itq: needs images with captions ({argument('captions')} "
            "FILE); there are none"
        )
    _check_items(encoder, n_items, codes)
    return _automatic_method(encoder, n_items, n_pairs) if codes == "auto" else codes


def _automatic_method(encoder: Encoder, n_items: int, n_pairs: int) -> Codes:
    """Return the best method of those that fit codes."""
    if n_pairs >= MIN_PAIRS and not encoder.one_space:
        return "cca-itq"
    return "itq" if n_items > 1 else "sign"  # one item has no principal directions


def _check_items(encoder: Encoder, n_items: int, codes: Codes) -> None:
    """Raise `InputError` if there are too few items."""
    if n_items < 1:
        raise InputError("there is no item to fit codes to; name a source")
    if codes in ("itq", "learned") and n_items < 2:
        raise InputError(f"{argument('codes')} {codes}: are fitted to two items or more; take sign")


def _check_own_codes(encoder: Encoder, n_bits: int) -> None:
    """Raise `InputError` if the codes of an encoder have fewer than ``n_bits`` bits."""
    if n_bits > encoder.own_bits:
        word = description.in_one_word(encoder.word)
        raise InputError(
            f"{argument('codes')} learned: the encoder {word} has {encoder.own_bits} bits of its "
            f"own, not {n_bits}; take itq"
        )


def _fit_maps(
    encoder: Encoder,
    features: FeaturesByModality,
    n_bits: int,
    method: Codes,
    seed: int,
    fit: Fit | None,
) -> dict[str, LinearMap]:
    """Return modality -> the map from features to outputs, fitted by a method; none for the
    encoder's own codes.
    """
    if method == "learned" and encoder.own_bits:
        return {}
    views = features
    if _takes_unit_rows(encoder, method):
        views = {name: unit_rows(values) for name, values in features.items()}
    if method == "cca-itq":
        n_items = len(next(iter(views.values())))
        n_features = sum(values.shape[1] for values in views.values())
        return cca_itq(views, n_bits, seed, rho=_CCA_RHO * n_features / n_items)
    if fit is None:
        raise InputError(f"{argument('codes')} learned: nothing learns them here; take itq")
    if encoder.one_space:
        return _fit_shared_map(encoder, views, n_bits, fit, seed)
    return {name: fit(values, n_bits, seed, name) for name, values in views.items()}


def _takes_unit_rows(encoder: Encoder, method: Codes) -> bool:
    """Return whether features get unit length before a map."""
    if method == "learned" and encoder.own_bits:
        return False
    return encoder.one_space or method != "cca-itq"


def _fit_shared_map(
    encoder: Encoder,
    views: FeaturesByModality,
    n_bits: int,
    fit: Fit,
    seed: int,
) -> dict[str, LinearMap]:
    """Fit one rotation for all modalities of a space, each centred on its own mean."""
    means = {name: values.mean(axis=0) for name, values in views.items()}
    centred = np.concatenate([values - means[name] for name, values in views.items()])
    shared = fit(centred, n_bits, seed, "all")
    if "text" in encoder.sides and "text" not in means:
        # What is made of a text is such a vector, with no mean of its own.
        means["text"] = means[VECTOR] if VECTOR in means else _mean_of_phrases(encoder)
    return {name: LinearMap(mean, shared.weights) for name, mean in sorted(means.items())}


def _mean_of_phrases(encoder: Encoder) -> NDArray[np.float32]:
    phrases = _PHRASES.read_text(encoding="utf-8").splitlines()
    mean: NDArray[np.float32] = unit_rows(encoder.features("text", phrases)).mean(axis=0)
    return mean


def _fit_quantizers(
    features: FeaturesByModality, maps: Mapping[str, LinearMap], seed: int
) -> dict[str, Quantizer]:
    """Fit how features are kept beside codes. A modality without features, the texts of a shared
    space, is rounded like the other one around its own mean.
    """
    fitted = {}
    for name, values in features.items():
        bits = min(8, 8 * _MOST_BYTES / values.shape[1])
        fitted[name] = Quantizer.fit(unit_rows(values), bits, seed)
    known = next(iter(fitted.values()))
    return {
        name: fitted.get(name) or replace(known, mean=unit_map.mean.astype(np.float32))
        for name, unit_map in maps.items()
    }


def _describe_fit(
    encoder: Encoder,
    maps: Mapping[str, LinearMap],
    n_bits: int,
    method: Codes,
    seed: int,
    n_items: int,
) -> dict[str, Any]:
    """Return the architecture of a fitted model, which is saved with it."""
    modalities = maps or encoder.modalities
    architecture: dict[str, Any] = dict(
        n_bits=n_bits,
        encoder=encoder.word if isinstance(encoder.word, str) else "extractors",
        codes=method,
        seed=seed,
        fitted_on=n_items if maps else 0,
        widths={name: encoder.sides[name].width for name in modalities},
        unit=_takes_unit_rows(encoder, method),
        centred=False,
    )
    return architecture | _describe_extractors(encoder, modalities)


def _describe_extractors(encoder: Encoder, modalities: Iterable[str]) -> dict[str, Any]:
    """Return names of extractors and the numbers that identify them; nothing for other encoders."""
    if isinstance(encoder.word, str):
        return {}
    seen = {name: encoder.seen[name] for name in modalities if name in encoder.seen}
    return {"extractors": dict(encoder.word), "seen": seen}
