"""The methods of `quality`, each by its own library and with the settings that it recommends.

    pip install faiss-cpu==1.15.1 rabitqlib==0.7.1 turbovec==1.1.2 remex==2.1.0 usearch==2.26.6

Bytes of a vector are its code with all scales, without its id. What a collection needs once, such
as codebooks and rotations, is counted beside. No method keeps floats of the vectors.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, cast, get_args

import numpy as np

from channelhash.codes.quantizer import Quantizer
from channelhash.compression import Compressor, compressor as compression
from channelhash.compression.compressor import Searcher, sample_of
from channelhash.utils.seeds import generator
from quality_data import Floats, K, Rows, unit
from quality_tables import BUDGETS

#: Subquantisers of PQ: more would be hardly more than one for each number.
_PARTS = (16, 32, 64, 128)
#: Numbers of a subquantiser after OPQ's rotation, as FAISS's guidelines say.
_OPQ_NUMBERS = 4
#: Rounds of OPQ: with FAISS's 50, recall hardly changes, and it would take most of the time.
_OPQ_ROUNDS = 10
#: Bits of a number of a question that FAISS compares with RaBitQ's first bits; 4 find fewer.
_QUESTION_BITS = 8
#: Lengths of codes that are compared alone.
_CODES = (128, 256)
#: Vectors that turbovec is calibrated to, as its documentation says.
_CALIBRATED = 1024
#: Bytes of a code's scales: FAISS's and rabitqlib's RaBitQ with more than a bit.
_FACTORS = 20
#: Bytes of our code alone, at most; with more, a second stage follows.
_ALONE = 16
#: First stages of ours: bytes -> bits.
_SHORT_FIRST = 64
_LONG_FIRST = 128
#: From so many bytes on the first stage has `_LONG_FIRST` bits.
_LONG_FROM = 100
#: Bytes of the scale of our second stage, and the most bits a number.
_SCALE = 4
_MOST_BITS = 8
#: The words of `Compressor.fit` for codes that are learned.
_LEARNED = "learned"


class Index(NamedTuple):
    """Vectors in the form of a method.

    Attributes:
        search: finds the ten rows nearest to a question ``(d,)``.
        shared: bytes that a collection needs once.
        search_all: the same for all questions ``(nq, d)``, where that is much faster.
    """

    search: Callable[[Floats], Rows]
    shared: int
    search_all: Callable[[Floats], Rows] | None = None


@dataclass(frozen=True)
class Method:
    """A way to keep vectors in few bytes.

    Attributes:
        name: for people.
        sizes: settings for vectors of so many numbers, and the bytes that a vector takes.
        build: makes the index of vectors ``(n, d)`` of unit length in a setting.
        is_ours: whether it is of this project.
        every: whether every setting is measured, instead of the largest within each budget.
    """

    name: str
    sizes: Callable[[int], Mapping[int, int]]
    build: Callable[[Floats, int], Index]
    is_ours: bool = False
    every: bool = False

    def chosen(self, width: int) -> dict[int, int]:
        """Return the settings to measure, and their bytes."""
        sizes = self.sizes(width)
        if self.every:
            return dict(sizes)
        largest = [
            max((n_bytes, setting) for setting, n_bytes in sizes.items() if n_bytes <= budget)
            for budget in BUDGETS
            if min(sizes.values(), default=budget + 1) <= budget
        ]
        return {setting: n_bytes for n_bytes, setting in largest}


def _parts(most: int, width: int) -> dict[int, int]:
    """Return numbers of subquantisers of a byte, each of two numbers or more."""
    return {m: m for m in _PARTS if m <= most and width % m == 0 and 2 * m <= width}


def _faiss(index: Any, vectors: Floats, n_bytes: int) -> Index:
    """Train an index of FAISS and add the vectors."""
    import faiss

    faiss.omp_set_num_threads(1)
    index.train(vectors)
    index.add(vectors)
    shared = len(faiss.serialize_index(index)) - n_bytes * len(vectors)
    return Index(lambda question: index.search(question[None], K)[1][0], shared)


def _by_factory(description: str, vectors: Floats, n_bytes: int) -> Index:
    import faiss

    index = faiss.index_factory(vectors.shape[1], description, faiss.METRIC_INNER_PRODUCT)
    return _faiss(index, vectors, n_bytes)


def _pq(vectors: Floats, m: int) -> Index:
    # "np" leaves out the order for polysemous codes, which takes most of the time and is not used
    return _by_factory(f"PQ{m}x8np", vectors, m)


def _opq(vectors: Floats, m: int) -> Index:
    import faiss

    width = vectors.shape[1]
    left = min(_OPQ_NUMBERS * m, width)
    rotation = faiss.OPQMatrix(width, m, left)
    rotation.niter = _OPQ_ROUNDS
    inner = faiss.IndexPQ(left, m, 8, faiss.METRIC_INNER_PRODUCT)
    inner.do_polysemous_training = False
    return _faiss(faiss.IndexPreTransform(rotation, inner), vectors, m)


def _sq_sizes(width: int) -> dict[int, int]:
    return {bits: bits * width // 8 for bits in (4, 6, 8)}


def _sq(vectors: Floats, bits: int) -> Index:
    return _by_factory(f"SQ{bits}", vectors, bits * vectors.shape[1] // 8)


def _rabitq_sizes(first: int, multiple: int, width: int) -> dict[int, int]:
    """Return bits a number and bytes; ``first`` are those of the factors of a single bit."""
    padded = -(-width // multiple) * multiple
    several = {bits: bits * padded // 8 + _FACTORS for bits in range(2, 10)}
    return {1: padded // 8 + first} | several


_faiss_rabitq_sizes = partial(_rabitq_sizes, 8, 8)
_rabitqlib_sizes = partial(_rabitq_sizes, 12, 64)


def _faiss_rabitq(vectors: Floats, bits: int) -> Index:
    import faiss

    width = vectors.shape[1]
    index = faiss.index_factory(
        width, f"RR{width},RaBitQ{bits if bits > 1 else ''}", faiss.METRIC_INNER_PRODUCT
    )
    faiss.downcast_index(index.index).qb = _QUESTION_BITS
    return _faiss(index, vectors, _faiss_rabitq_sizes(width)[bits])


def _bits_sizes(width: int) -> dict[int, int]:
    return {n_bits: n_bits // 8 for n_bits in _CODES if n_bits <= width}


def _faiss_itq(vectors: Floats, n_bits: int) -> Index:
    import faiss

    rotation = faiss.ITQTransform(vectors.shape[1], n_bits, True)
    index = faiss.IndexPreTransform(rotation, faiss.IndexLSH(n_bits, n_bits, False, False))
    return _faiss(index, vectors, n_bits // 8)


def _rabitqlib(vectors: Floats, bits: int) -> Index:
    import rabitqlib

    n, width = vectors.shape
    n_clusters = round(4 * n**0.5)  # as its documentation says; all of them are searched
    clusters = rabitqlib.RaBitQKMeans(
        width, n_clusters, num_threads=1, final_assignment=rabitqlib.FinalAssignmentMode.Exact
    )
    clusters.train(vectors)
    index = rabitqlib.IvfIndex(
        dim=width, max_elements=n, num_clusters=n_clusters, nbits=bits, metric="l2"
    )
    index.build(vectors, clusters.centroids, clusters.assignments)

    def search(question: Floats) -> Rows:
        found, _ = index.search(question[None], k=K, nprobe=n_clusters, high_accuracy=True)
        return np.asarray(found[0], np.int64)

    return Index(search, 4 * clusters.centroids.size)


def _turbovec_sizes(width: int) -> dict[int, int]:
    return {bits: bits * width // 8 + 4 for bits in (2, 4)}


def _turbovec(vectors: Floats, bits: int) -> Index:
    import turbovec

    n, width = vectors.shape
    drawn = generator(0, "sample for turbovec").permutation(n)[:_CALIBRATED]
    index = turbovec.TurboQuantIndex(dim=width, bit_width=bits)
    index.calibrate(np.ascontiguousarray(vectors[drawn]))
    index.add(vectors)
    index.prepare()
    shared = len(index.to_bytes()) - _turbovec_sizes(width)[bits] * n
    return Index(lambda question: index.search(question[None], k=K)[1][0], shared)


def _remex_sizes(width: int) -> dict[int, int]:
    return {bits: bits * width // 8 + 8 for bits in (1, 2, 3, 4, 8)}


def _remex(vectors: Floats, bits: int) -> Index:
    """Index by remex with its mean, and search in packed codes, since its other search keeps
    floats.
    """
    import remex

    mean = remex.corpus_mean(vectors)
    quantizer = remex.Quantizer(d=vectors.shape[1], bits=bits, mean=mean)
    codes = quantizer.encode(vectors)
    packed = remex.PackedVectors.from_compressed(codes)

    def search_all(questions: Floats) -> Rows:
        found = quantizer.search_batch(codes, questions, k=K)[0]
        codes.drop_cache()
        return np.asarray(found)

    return Index(
        lambda question: quantizer.search_adc(packed, question, k=K)[0], mean.nbytes, search_all
    )


def _usearch_bits(vectors: Floats, _: int) -> Index:
    from usearch.index import MetricKind

    return _usearch(np.packbits(vectors > 0, axis=1), MetricKind.Hamming, "b1", vectors.shape[1])


def _usearch_int8(vectors: Floats, _: int) -> Index:
    from usearch.index import MetricKind

    return _usearch(vectors, MetricKind.Cos, "i8", vectors.shape[1])


def _usearch(rows: Any, metric: Any, kind: str, width: int) -> Index:
    """Index by usearch, which is asked exactly: its graph is neither used nor counted."""
    from usearch.index import Index as Graph

    graph = Graph(ndim=width, metric=metric, dtype=kind)
    graph.add(np.arange(len(rows)), rows, threads=1)

    def search(question: Floats) -> Rows:
        asked = np.packbits(question > 0) if kind == "b1" else question
        return np.asarray(graph.search(asked, K, exact=True, threads=1).keys, np.int64)

    return Index(search, 0)


def _floats(vectors: Floats, _: int) -> Index:
    import faiss

    return _faiss(faiss.IndexFlatIP(vectors.shape[1]), vectors, 4 * vectors.shape[1])


def _centred_floats(vectors: Floats, _: int) -> Index:
    """Index vectors less their mean, in unit length again."""
    mean = vectors.mean(axis=0)
    index = _floats(unit(vectors - mean), 0)
    return Index(lambda question: index.search(unit(question[None] - mean)[0]), mean.nbytes)


def _second_sizes(width: int) -> dict[int, int]:
    """Return the bytes of codes with a second stage: as many as any rival takes, and budgets."""
    taken = {n_bytes for rival in RIVALS for n_bytes in rival.chosen(width).values()}
    fitting = {n_bytes: n_bytes for n_bytes in taken.union(BUDGETS) if n_bytes > _ALONE}
    most = _LONG_FIRST // 8 + _SCALE + _MOST_BITS * width // 8
    return {min(n_bytes, most): min(n_bytes, most) for n_bytes in fitting}


def _alone(method: str, vectors: Floats, n_bits: int) -> Index:
    fitted = Compressor.fit(vectors, n_bits, None, method=cast(Any, method))
    return _ours(fitted, vectors, n_bits // 8)


def _two_stages(vectors: Floats, n_bytes: int) -> Index:
    n_bits = _LONG_FIRST if n_bytes >= _LONG_FROM else _SHORT_FIRST
    bits = 8 * (n_bytes - n_bits // 8 - _SCALE) / vectors.shape[1]
    fitted = Compressor.fit(vectors, n_bits, None)
    sample = sample_of(vectors, "cosine", 0)
    return _ours(fitted.with_second(sample, bits), vectors, n_bytes)


def _ours(compressor: Compressor, vectors: Floats, n_bytes: int) -> Index:
    if compressor.n_bytes != n_bytes:
        raise ValueError(f"a vector takes {compressor.n_bytes} bytes, not {n_bytes}")
    searcher = Searcher(compressor, compressor.encode(vectors))
    shared = compressor.mean.nbytes + compressor.weights.nbytes
    if compressor.quantizer is not None:
        shared += sum(array.nbytes for array in compressor.quantizer.arrays().values())
    return Index(lambda question: searcher.search(question[None], K).rows[0], shared)


def _numbers_sizes(width: int) -> dict[int, int]:
    most = _SCALE + _MOST_BITS * width // 8
    return {min(budget, most): min(budget, most) for budget in BUDGETS}


def _numbers(vectors: Floats, n_bytes: int) -> Index:
    """Keep the second stage alone, and compare a question with all vectors."""
    quantizer = Quantizer.fit(vectors, 8 * (n_bytes - _SCALE) / vectors.shape[1])
    rows = quantizer.encode(vectors)
    if rows.shape[1] != n_bytes:
        raise ValueError(f"a vector takes {rows.shape[1]} bytes, not {n_bytes}")

    def search(question: Floats) -> Rows:
        return np.argsort(-quantizer.inner_products(question, rows), kind="stable")[:K]

    return Index(search, sum(array.nbytes for array in quantizer.arrays().values()))


def _whole(bits: int, width: int) -> dict[int, int]:
    return {bits: bits * width // 8}


RIVALS = (
    Method("FAISS PQ", partial(_parts, 128), _pq),
    Method("FAISS OPQ", partial(_parts, 64), _opq),
    Method("FAISS SQ", _sq_sizes, _sq),
    Method("FAISS RaBitQ", _faiss_rabitq_sizes, _faiss_rabitq),
    Method("FAISS ITQ", _bits_sizes, _faiss_itq),
    Method("rabitqlib", _rabitqlib_sizes, _rabitqlib),
    Method("turbovec", _turbovec_sizes, _turbovec),
    Method("remex", _remex_sizes, _remex),
    Method("usearch b1", partial(_whole, 1), _usearch_bits),
    Method("usearch i8", partial(_whole, 8), _usearch_int8),
)
OURS = (
    Method("ours, bits", _bits_sizes, partial(_alone, "itq"), is_ours=True),
    Method("ours, bits, then numbers", _second_sizes, _two_stages, is_ours=True, every=True),
    Method("ours, numbers alone", _numbers_sizes, _numbers, is_ours=True),
    Method("ours, learned bits", _bits_sizes, partial(_alone, _LEARNED), is_ours=True),
)
#: Whose bytes do not count: what all others are compared with.
YARDSTICKS = (
    Method("floats", partial(_whole, 32), _floats, every=True),
    Method("floats less their mean", partial(_whole, 32), _centred_floats, every=True),
)


def available() -> list[Method]:
    """Return all methods that this version has."""
    warnings.filterwarnings("ignore", module="remex")
    can_learn = _LEARNED in get_args(compression.Method)
    ours = [method for method in OURS if can_learn or "learned" not in method.name]
    return [*YARDSTICKS, *RIVALS, *ours]
