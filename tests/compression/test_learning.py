"""Learned maps: neighbours, temperature and soft similarities against slow transcriptions, and that
learned codes find more.
"""

import math

import numpy as np
import pytest

from channelhash.compression import learning
from channelhash.compression.compressor import Compressor, prepare
from channelhash.compression.rivals import nearest
from channelhash.data.vectors import Vectors
from channelhash.losses import SCHLoss
from channelhash.metrics.retrieval import neighbour_recall
from channelhash.models.linear_maps import pca_itq

SIMILARITIES = ("cosine", "inner", "euclidean")


def tangled(n, seed=0):
    """Vectors of eight clusters, each of which is spread in three directions of its own."""
    random = np.random.default_rng(seed)
    centres, directions = random.normal(size=(8, 16)), random.normal(size=(8, 16, 3))
    topics = np.arange(n) % 8
    spread = np.einsum("ndk,nk->nd", directions[topics], random.normal(size=(n, 3)))
    return (centres[topics] + 0.5 * spread).astype(np.float32)


def scores_of(rows, similarity):
    """s of all pairs, one by one; of a vector with itself −∞."""
    scores = np.full((len(rows), len(rows)), -np.inf)
    for i, a in enumerate(rows.astype(np.float64)):
        for j, b in enumerate(rows.astype(np.float64)):
            if i != j:
                scores[i, j] = -((a - b) ** 2).sum() if similarity == "euclidean" else a @ b
    return scores


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("n", "n_near"), [(2, 1), (12, 11), (60, 16)])
@pytest.mark.parametrize("perplexity", [8, 13])
def test_neighbours_and_their_temperature_are_those_of_all_pairs(
    similarity, n, n_near, perplexity, monkeypatch
):
    monkeypatch.setattr(learning, "_PERPLEXITY", perplexity)
    rows = prepare(tangled(n), similarity)
    near = learning.nearest_rows(rows, similarity, seed=0)
    scores = scores_of(rows, similarity)
    np.testing.assert_array_equal(near, np.argsort(-scores, axis=1)[:, :n_near])
    temperature = learning._temperature(rows, near, similarity, seed=0)
    perplexities = []
    for own, columns in zip(scores, near, strict=True):
        weights = [math.exp((own[j] - own[columns[0]]) / temperature) for j in columns]
        shares = [weight / sum(weights) for weight in weights]
        perplexities.append(math.exp(-sum(p * math.log(p) for p in shares if p > 0)))
    wanted = max(1, perplexity * n_near / 16)
    assert np.mean(perplexities) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_similarities_fall_from_the_nearest_vector_on(similarity):
    rows = prepare(tangled(20), similarity)
    scores = scores_of(rows, similarity)
    expected = [
        [1.0 if i == j else math.exp((s - max(own)) / 0.3) for j, s in enumerate(own)]
        for i, own in enumerate(scores.tolist())
    ]
    np.testing.assert_allclose(
        learning._soft_similarities(rows, similarity, 0.3), expected, rtol=1e-3, atol=1e-6
    )


@pytest.mark.parametrize(
    ("similarity", "more"), [("cosine", 0.08), ("inner", 0.01), ("euclidean", 0.08)]
)
def test_learned_codes_find_more_neighbours_than_itq(similarity, more, monkeypatch):
    monkeypatch.setattr(learning, "_SEEDS", 24)
    monkeypatch.setattr(learning, "_STEPS", 60)
    rows = tangled(650)
    exact = nearest(prepare(rows[:50], similarity), Vectors.of(rows[50:]), 10, similarity)
    found = {}
    for method in ("itq", "learned"):
        compressor = Compressor.fit(rows[50:], 8, None, similarity, method)
        answers = compressor.search(rows[:50], compressor.encode(rows[50:]), k=10).rows
        found[method] = neighbour_recall(answers, exact).mean()
    assert found["learned"] > found["itq"] + more


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("n", [2, 3, 20])
def test_few_vectors_teach_the_same_map_for_the_same_seed(n, similarity, monkeypatch):
    monkeypatch.setattr(learning, "_STEPS", 4)
    rows = tangled(n)
    first, again, other = (
        Compressor.fit(rows, 16, 2, similarity, "learned", seed).weights for seed in (1, 1, 2)
    )
    assert np.isfinite(first).all()
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


def test_equal_vectors_at_the_beginning_do_not_hide_the_others(monkeypatch):
    monkeypatch.setattr(learning, "_STEPS", 2)
    others = tangled(60)
    rows = np.concatenate([np.repeat(others[:1], 1100, axis=0), others])
    start = pca_itq(rows, 8, 0, "vector")
    assert np.isfinite(learning.learn_map(rows, start, "euclidean").weights).all()


def test_a_channel_loss_gets_similarities_that_are_symmetric():
    given = []

    class Seen(SCHLoss):
        def compute(self, batch):
            given.append(batch.similarity)
            return super().compute(batch)

    rows, shown = tangled(52), []
    start = pca_itq(rows, 8, 0, "vector")
    learned = learning.learn_map(
        rows, start, "inner", loss=Seen(8), progress=lambda *done: shown.append(done)
    )
    assert all((similarity == similarity.T).all() for similarity in given)
    assert (learned.weights != start.weights).any()
    assert shown == [(1, 3), (2, 3), (3, 3)]  # 40 · 52 / 1,024 batches


def test_a_map_is_held_where_it_began(monkeypatch):
    rows = tangled(300)
    start = pca_itq(rows, 8, 0, "vector")
    begun = start.weights / start(rows).std()
    changes = []
    for decay in (0, 1e5):
        monkeypatch.setattr(learning, "_DECAY", decay)
        changes.append(np.square(learning.learn_map(rows, start).weights - begun).mean())
    assert changes[0] > 100 * changes[1] > 0
