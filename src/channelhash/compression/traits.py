"""What vectors and their questions are like, as far as it tells which codes suit them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.codes.stage import Similarity
from channelhash.compression.rivals import similarities
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]

#: Vectors, and questions, that are compared with the others at most.
_ASKED = 1000
#: Nearest vectors of which hubs are in many.
_NEAR = 10
#: `Traits.distance` of questions from which on ITQ finds more than learned codes, as measured on
#: data sets of four encoders: docs/how-to/compress.md.
_FAR = 0.4


class Traits(NamedTuple):
    """Numbers that describe vectors of one encoder and the questions that are asked.

    Attributes:
        vectors_a_number: vectors for each number of one, n / d.
        share: effective dimensions of their spectrum, (Σ λ)² / Σ λ², over d.
        mean: length of the mean over the root mean square length.
        hubness: skewness of how often a vector is among the ten nearest of others (Radovanović
            et al., "Hubs in Space", JMLR 2010).
        distance: how much nearer vectors are to their nearest one than questions to theirs, in
            standard deviations of the similarity of two vectors.
    """

    vectors_a_number: float
    share: float
    mean: float
    hubness: float
    distance: float

    @property
    def suit_learned(self) -> bool:
        """Whether learned codes are likely to find more neighbours than those of ITQ."""
        return self.distance < _FAR


def traits_of(
    n: int, sample: _Floats, questions: _Floats, similarity: Similarity, seed: int = 0
) -> Traits:
    """Return the traits of vectors, of which at most 1,000 are compared with the sample.

    Args:
        n: number of vectors.
        sample: ``(m, d)`` of them, as `compressor.prepare` gives them.
        questions: ``(nq, d)``, likewise.
        similarity: how they are compared.
        seed: of what is drawn.

    >>> random = np.random.default_rng(0)
    >>> vectors = random.normal(size=(500, 8)).astype(np.float32)
    >>> traits = traits_of(500, vectors, vectors[:50] + 0.1, "euclidean")
    >>> traits.vectors_a_number, traits.share > 0.9, traits.mean < 0.1
    (62.5, True, True)
    """
    d = sample.shape[1]
    spectrum = np.linalg.eigvalsh(np.cov(sample, rowvar=False).reshape(d, d))
    length = float(np.sqrt(np.square(sample).sum(axis=1).mean()))
    drawn = generator(seed, "traits").permutation(len(sample))[:_ASKED]
    scores = similarities(sample[drawn], sample, similarity)
    usual = float(scores.std())
    scores[np.arange(len(drawn)), drawn] = -np.inf
    n_near = min(_NEAR, len(sample) - 1)
    near = np.argpartition(scores, -n_near, axis=1)[:, -n_near:]
    counts = np.bincount(near.ravel(), minlength=len(sample)).astype(np.float64)
    asked = similarities(questions[:_ASKED], sample, similarity).max(axis=1)
    return Traits(
        n / d,
        float(spectrum.sum() ** 2 / (np.square(spectrum).sum() * d)),
        float(np.linalg.norm(sample.mean(axis=0)) / length),
        _skewness(counts),
        float((scores.max(axis=1).mean() - asked.mean()) / usual),
    )


def _skewness(values: NDArray[np.float64]) -> float:
    """Return the third standardised moment; 0 of equal values.

    >>> round(_skewness(np.array([0.0, 0, 0, 4])), 2)
    1.15
    """
    moved = values - values.mean()
    deviation = moved.std()
    return float((moved**3).mean() / deviation**3) if deviation else 0.0
