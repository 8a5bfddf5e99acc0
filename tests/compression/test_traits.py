"""What vectors and questions are like, by definition, and which codes are tried first."""

import numpy as np
import pytest

from channelhash.compression.proof import prove
from channelhash.compression.task import make_task
from channelhash.compression.traits import traits_of
from channelhash.compression.trials import Plan
from channelhash.data.vectors import Vectors


def drawn(n, seed=0, d=12):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)


def test_traits_are_those_of_their_definitions():
    vectors = drawn(60) * np.arange(1, 13) + 3
    questions = drawn(7, seed=1) * 20
    traits = traits_of(600, vectors, questions, "inner")
    assert traits.vectors_a_number == 600 / 12
    values = np.linalg.eigvalsh(np.cov(vectors.T))
    assert traits.share == pytest.approx(values.sum() ** 2 / (values**2).sum() / 12, rel=1e-4)
    length = np.sqrt((vectors**2).sum(axis=1).mean())
    assert traits.mean == pytest.approx(np.linalg.norm(vectors.mean(axis=0)) / length, rel=1e-5)
    scores = vectors @ vectors.T
    spread = scores.std()
    counts = np.zeros(60)
    best = []
    for row in range(60):
        others = [other for other in np.argsort(-scores[row]) if other != row]
        counts[others[:10]] += 1
        best.append(scores[row, others[0]])
    moved = counts - counts.mean()
    assert traits.hubness == pytest.approx((moved**3).mean() / (moved**2).mean() ** 1.5, rel=1e-4)
    nearest = (questions @ vectors.T).max(axis=1)
    distance = (np.mean(best) - nearest.mean()) / spread
    assert traits.distance == pytest.approx(distance, rel=1e-4)


@pytest.mark.parametrize("first", ["learned", "itq"])
def test_what_suits_questions_is_tried_first_and_the_other_too(first, monkeypatch):
    monkeypatch.setattr("channelhash.compression.learning._STEPS", 2)
    vectors = drawn(200) + 1
    # Copies of vectors are nearer to these than others are; opposite ones are far.
    asked = vectors[:20] if first == "learned" else -vectors[:20]
    task = make_task(Vectors.of(vectors), Vectors.of(asked))
    proof = prove(task, Plan("cosine", n_bits=(8,), second=(None,), codes=("itq", "learned")))
    methods = [row.method for row in proof.rows if row.is_ours]
    assert methods == [first, {"itq": "learned", "learned": "itq"}[first]]
    assert any(note.startswith(f"{first} codes are expected") for note in proof.notes)
