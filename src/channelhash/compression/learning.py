"""Learn maps to codes from vectors alone: by their own neighbours."""

import numpy as np
import torch
from numpy.typing import NDArray

from channelhash.codes import pack
from channelhash.codes.stage import Similarity
from channelhash.compression.rivals import similarities
from channelhash.losses import ChannelLoss, HashLoss, ListwiseLoss
from channelhash.models.linear_maps import LinearMap, pca_itq
from channelhash.search.index import CodeIndex
from channelhash.utils.progress import Progress, no_progress
from channelhash.utils.seeds import generator

_Floats = NDArray[np.float32]
_Rows = NDArray[np.int64]

#: Vectors that maps are learned from at most; 10⁵ of 384 numbers take 40 s on two cores.
SAMPLE = 100_000
#: Nearest vectors that count as a vector's neighbours, and how many of these count on average once
#: similarities are probabilities (their perplexity).
_NEIGHBOURS = 16
_PERPLEXITY = 8.0
#: Length of the codes that find neighbours, and how many nearest codes the vectors order.
_GRAPH_BITS = 256
_CANDIDATES = 64
#: Vectors asked at a time, which bounds memory.
_ROWS = 1024
#: A batch is so many vectors, each with so many of its neighbours: without these, hardly two of a
#: batch are near.
_SEEDS = 128
_NEAR_EACH = 7
#: How often each vector is drawn, batches at most, and the first learning rate of outputs of
#: variance 1, which falls as a cosine.
_EPOCHS = 40
_STEPS = 600
_RATE = 0.03
#: Weight, over the number of vectors, of the squared change of a column of weights: questions
#: unlike all vectors need what few vectors do not show.
_DECAY = 10.0


def learn_map(
    vectors: _Floats,
    start: LinearMap,
    similarity: Similarity = "cosine",
    seed: int = 0,
    loss: HashLoss | None = None,
    progress: Progress = no_progress,
) -> LinearMap:
    """Learn a map to codes from vectors alone: whose neighbours are near each other in the codes.

    S of two vectors is e^((s − s_max) / T) of the encoder's similarity s: s_max is that of the
    nearest vector of the batch, T such that 8 of the 16 nearest vectors count (their perplexity).
    The loss has 10 ‖W − W_0‖² / (n k) beside it, of the change of a map to outputs of variance 1.

    Args:
        vectors: ``(n, d)``, as `compressor.prepare` gives them.
        start: the map to begin with, of ITQ.
        similarity: how vectors are compared.
        seed: of the batches.
        loss: one that takes similarities; `ListwiseLoss` if None. A channel loss gets the larger
            of S_ij and S_ji.
        progress: of the batches.

    >>> vectors = np.random.default_rng(0).normal(size=(50, 16)).astype(np.float32)
    >>> learn_map(vectors, pca_itq(vectors, 8, 0, "vector"), "euclidean").weights.shape
    (16, 8)
    """
    k = start.weights.shape[1]
    near = nearest_rows(vectors, similarity, seed)
    temperature = _temperature(vectors, near, similarity, seed)
    loss = loss or ListwiseLoss(k)
    centred = torch.from_numpy(vectors - start.mean.astype(np.float32))
    initial = torch.tensor(start.weights, dtype=torch.float32)
    initial /= (centred @ initial).std()
    weights = initial.clone().requires_grad_()
    optimizer = torch.optim.Adam([weights])
    n = len(vectors)
    steps = min(_STEPS, 1 + _EPOCHS * n // (_SEEDS * (1 + _NEAR_EACH)))
    schedule = cosine_schedule(optimizer, _RATE, steps)
    random = generator(seed, "batches of neighbours", k)
    for step in range(steps):
        rows = _draw(near, random)
        soft = _soft_similarities(vectors[rows], similarity, temperature)
        if isinstance(loss, ChannelLoss):
            soft = np.maximum(soft, soft.T)
        value = loss({"vector": centred[rows] @ weights}, similarity=torch.from_numpy(soft))
        value = value + _DECAY / (n * k) * (weights - initial).square().sum()
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        schedule.step()
        progress(step + 1, steps)
    return LinearMap(start.mean, weights.detach().numpy().astype(np.float64))


def cosine_schedule(
    optimizer: torch.optim.Optimizer, rate: float, steps: int
) -> torch.optim.lr_scheduler.LRScheduler:
    """Let the learning rate rise for 5 % of the steps, then fall as half a cosine to nearly 0."""
    return torch.optim.lr_scheduler.OneCycleLR(
        optimizer, rate, total_steps=steps, pct_start=0.05, cycle_momentum=False
    )


def nearest_rows(vectors: _Floats, similarity: Similarity, seed: int) -> _Rows:
    """Return the rows ``(n, 16)`` of the nearest other vectors of each, nearest first: those that
    are most similar among the 64 nearest codes of 256 bits.

    There are fewer columns where there are fewer vectors.
    """
    n = len(vectors)
    n_bits = min(_GRAPH_BITS, vectors.shape[1])
    sample = generator(seed, "vectors of a graph").permutation(n)[:20_000]
    fitted = pca_itq(vectors[sample], n_bits, seed, "graph")
    codes = pack(fitted(vectors) >= 0)
    index = CodeIndex.build(codes, n_bits)
    n_near = min(_NEIGHBOURS, n - 1)
    near = np.empty((n, n_near), np.int64)
    for start in range(0, n, _ROWS):
        matches = index.nearest(codes[start : start + _ROWS], min(n, _CANDIDATES + 1))
        for row, match in enumerate(matches, start):
            others = match.rows[match.rows != row]
            scores = similarities(vectors[row], vectors[others], similarity)
            near[row] = others[np.argsort(-scores, kind="stable")[:n_near]]
    return near


def _temperature(vectors: _Floats, near: _Rows, similarity: Similarity, seed: int) -> float:
    """Return T at which, on average of some vectors, 8 of the 16 neighbours count; the same share
    of them where there are fewer.
    """
    drawn = generator(seed, "vectors of a temperature").permutation(len(vectors))[:_ROWS]
    scores = np.empty((len(drawn), near.shape[1]))
    for place, row in enumerate(drawn):
        scores[place] = similarities(vectors[row], vectors[near[row]], similarity)
    scores -= scores.max(axis=1, keepdims=True)
    wanted = _PERPLEXITY * near.shape[1] / _NEIGHBOURS
    lower = 1e-9
    upper = 1e3 * max(1.0, float(-scores.min()))
    for _ in range(80):
        temperature = float(np.sqrt(lower * upper))
        if _perplexity(scores / temperature) > wanted:
            upper = temperature
        else:
            lower = temperature
    return temperature


def _perplexity(logits: NDArray[np.float64]) -> float:
    """Return the mean perplexity of the softmax of rows whose largest number is 0.

    >>> _perplexity(np.zeros((1, 4)))
    4.0
    """
    shares = np.exp(logits)
    shares /= shares.sum(axis=1, keepdims=True)
    entropies = -(shares * np.log(np.maximum(shares, 1e-300))).sum(axis=1)
    return float(np.exp(entropies).mean())


def _draw(near: _Rows, random: np.random.Generator) -> _Rows:
    """Draw the rows of a batch."""
    n = len(near)
    seeds = random.choice(n, min(_SEEDS, n), replace=False)
    columns = random.random((len(seeds), near.shape[1])).argsort(axis=1)[:, :_NEAR_EACH]
    return np.unique(np.concatenate([seeds, near[seeds[:, None], columns].ravel()]))


def _soft_similarities(vectors: _Floats, similarity: Similarity, temperature: float) -> _Floats:
    """Return S of a batch, ``(n, n)``: 1 for the nearest other vector of each row, and itself."""
    scores = similarities(vectors, vectors, similarity)
    np.fill_diagonal(scores, -np.inf)
    soft = np.exp((scores - scores.max(axis=1, keepdims=True)) / temperature)
    np.fill_diagonal(soft, 1)
    return np.asarray(soft, np.float32)
