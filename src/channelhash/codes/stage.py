"""The second stage of a search: vectors in a few bits a number beside the codes, which order the
items that codes find.

A model's outputs of an item begin with the k numbers whose signs are its code. Where a `Stage` has
quantizers, the numbers of the vector that it keeps follow; without any, it keeps the k outputs
themselves with 8 bits a number. Where it has a `Bank` of texts, the excess of an image, which is
taken from its similarities to texts (`channelhash.codes.hubs`), follows its vector.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from channelhash.codes import PackedCodes, unit_rows, unpack
from channelhash.codes.hubs import Bank
from channelhash.codes.quantizer import QuantizedRows, Quantizer
from channelhash.errors import InputError
from channelhash.utils.hashes import content_hash

#: How vectors are meant to be compared: by cosine, inner product or Euclidean distance.
Similarity = Literal["cosine", "inner", "euclidean"]

_plain = cache(Quantizer.plain)
#: How an excess is written behind a vector.
_EXCESS = np.dtype("<f4")


@dataclass(frozen=True, eq=False)
class Stage:
    """How a store keeps vectors beside codes and compares them with those of questions.

    Attributes:
        n_bits: code length k.
        quantizers: modality -> how its vectors are rounded; empty where the outputs of codes are
            kept. All have one width and take as many bytes.
        similarity: how vectors are compared.
        bank: texts by which similarities of texts and images are corrected; None corrects none.

    >>> stage = Stage(n_bits=2)
    >>> outputs = np.array([[0.5, -0.25], [0.5, 0.25]])
    >>> rows = stage.encode("image", outputs)
    >>> rows.shape, stage.scores("image", outputs[0], rows).round(2).tolist()
    ((2, 6), [1.0, 0.6])
    """

    n_bits: int
    quantizers: Mapping[str, Quantizer] = field(default_factory=dict)
    similarity: Similarity = "cosine"
    bank: Bank | None = None

    def of(self, modality: str) -> Quantizer:
        """Return how the vectors of a modality are rounded.

        Raises:
            InputError: the quantizers are of other modalities.
        """
        if not self.quantizers:
            return _plain(self.n_bits)
        if modality not in self.quantizers:
            names = " and ".join(sorted(self.quantizers))
            raise InputError(f"{modality} projections: this store keeps those of {names}")
        return self.quantizers[modality]

    @property
    def _any(self) -> Quantizer:
        return next(iter(self.quantizers.values()), None) or _plain(self.n_bits)

    @property
    def n_bytes(self) -> int:
        """Bytes of a vector, and of what follows it."""
        return self._any.n_bytes + (0 if self.bank is None else _EXCESS.itemsize)

    @property
    def n_outputs(self) -> int:
        """Numbers of an item's outputs: those of its code, and of its vector if that follows."""
        return self.n_bits + (self._any.width if self.quantizers else 0)

    def vectors(self, outputs: NDArray[Any]) -> NDArray[np.float32]:
        """Return the vectors ``(n, d)`` in outputs ``(n, n_outputs)``, of unit length where their
        cosine counts.
        """
        rows = np.asarray(outputs)[:, self.n_bits :] if self.quantizers else np.asarray(outputs)
        if self.similarity == "cosine":
            rows = unit_rows(rows)
        return np.asarray(rows, np.float32)

    def encode(self, modality: str, outputs: NDArray[Any]) -> QuantizedRows:
        """Round the vectors in outputs ``(n, n_outputs)`` to rows ``(n, n_bytes)``."""
        vectors = self.vectors(outputs)
        rows = self.of(modality).encode(vectors)
        if self.bank is None:
            return rows
        excesses = np.zeros(len(rows), _EXCESS)
        if modality == "image":
            excesses[:] = self.bank.excesses(vectors)
        return np.hstack([rows, excesses[:, None].view(np.uint8)])

    def scores(
        self, modality: str, outputs: NDArray[Any], rows: QuantizedRows, asked: str = ""
    ) -> NDArray[np.float32]:
        """Estimate the similarities ``(n,)`` of stored vectors of a modality and one question,
        given by its outputs ``(n_outputs,)``; see `estimate`. ``asked`` is the modality of the
        question: the excess of each image is taken from its similarity to a text.
        """
        question = self.vectors(outputs[None])[0]
        width = self._any.n_bytes
        similarities = estimate(self.of(modality), self.similarity, question, rows[:, :width])
        if self.bank is None or asked != "text":
            return similarities
        return similarities - np.ascontiguousarray(rows[:, width:]).view(_EXCESS)[:, 0]

    def outputs(
        self, modality: str, codes: PackedCodes, rows: QuantizedRows
    ) -> NDArray[np.float32]:
        """Return outputs ``(n, n_outputs)`` that stand for stored items: ±1 for the bits of their
        codes where these are not the vectors.
        """
        decoded = self.of(modality).decode(rows[:, : self._any.n_bytes])
        if not self.quantizers:
            return decoded
        signs = np.where(unpack(codes, self.n_bits), np.float32(1), np.float32(-1))
        return np.hstack([signs, decoded])

    def to_bytes(self) -> bytes:
        """Return the stage as a file for `from_bytes`."""
        arrays: dict[str, NDArray[Any]] = {
            f"{name}.{part}": values
            for name, quantizer in self.quantizers.items()
            for part, values in quantizer.arrays().items()
        }
        file = io.BytesIO()
        facts = {"n_bits": np.array(self.n_bits), "similarity": np.array(self.similarity)}
        facts |= self._bank_arrays()
        # Without allow_pickle, which NumPy has from 2.1 on; 2.0 would write it as an array.
        np.savez(file, **facts, **arrays)  # type: ignore[arg-type]
        return file.getvalue()

    @classmethod
    def from_bytes(cls, content: bytes) -> "Stage":
        """Return the stage that `to_bytes` wrote.

        >>> Stage.from_bytes(Stage(n_bits=8, similarity="inner").to_bytes()).similarity
        'inner'
        """
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays = dict(file)
        n_bits = int(arrays.pop("n_bits"))
        similarity = str(arrays.pop("similarity"))
        bank = None
        if "bank" in arrays:
            bank = Bank(arrays.pop("bank"), float(arrays.pop("temperature")))
        parts: dict[str, dict[str, NDArray[Any]]] = {}
        for name, values in arrays.items():
            modality, _, part = name.rpartition(".")
            parts.setdefault(modality, {})[part] = values
        quantizers = {name: Quantizer.from_arrays(values) for name, values in parts.items()}
        return cls(n_bits, quantizers, similarity, bank)  # type: ignore[arg-type]  # as written

    def _bank_arrays(self) -> dict[str, NDArray[Any]]:
        if self.bank is None:
            return {}
        return {"bank": self.bank.vectors, "temperature": np.array(self.bank.temperature)}

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all that its rows depend on."""
        parts = [f"{self.n_bits} {self.similarity}".encode()]
        for name in sorted(self.quantizers):
            parts.append(name.encode())
            parts += [values.tobytes() for values in self.quantizers[name].arrays().values()]
        parts += [values.tobytes() for values in self._bank_arrays().values()]
        return content_hash(*parts)[:16]


def unit_parts(outputs: NDArray[Any], n_bits: int) -> NDArray[np.float32]:
    """Return outputs ``(n, n_outputs)`` with codes and vectors each of unit length.

    >>> unit_parts(np.array([[3.0, 4.0, 2.0]]), n_bits=2).round(1).tolist()
    [[0.6, 0.8, 1.0]]
    """
    parts = [unit_rows(outputs[:, :n_bits]), unit_rows(outputs[:, n_bits:])]
    return np.hstack(parts).astype(np.float32)


def estimate(
    quantizer: Quantizer, similarity: Similarity, question: NDArray[Any], rows: QuantizedRows
) -> NDArray[np.float32]:
    """Estimate the similarities ``(n,)`` of a question ``(d,)`` and rounded vectors; larger is
    nearer.

    It is the inner product, which is the cosine of vectors of unit length; for "euclidean" the
    negative square of the distance. Equal rows get bit-identical values.
    """
    products = quantizer.inner_products(question, rows)
    if similarity != "euclidean":
        return products
    lengths = np.square(quantizer.decode(rows)).sum(axis=1)
    return np.asarray(2 * products - lengths - np.square(question).sum(), np.float32)
