"""The proof of codes: rows, centring, notes on the data, and the choice."""

from dataclasses import replace

import numpy as np
import pytest
from tests.compression.test_task import vectors

from channelhash.compression.compressor import Compressor, prepare
from channelhash.compression.proof import choose, prove, question_distance
from channelhash.compression.rivals import nearest
from channelhash.compression.task import make_task
from channelhash.compression.trials import Plan, Row, Scores
from channelhash.data.vectors import Vectors
from channelhash.metrics.retrieval import neighbour_recall
from refusals import check_refusal


def test_more_bytes_find_more_and_floats_find_all():
    plan = Plan(n_bits=(8,), second=(None, 2, 4), first=50)
    rows = prove(make_task(vectors()), plan).rows
    means = {row.name: row.scores.neighbours.mean() for row in rows}
    assert list(means) == [
        "floats",
        "8 bits by distance",
        "8 bits",
        "8 bits, then 2 bits a number",
        "8 bits, then 4 bits a number",
        "sign",
        "int8",
        "sign, first 100, then int8",
    ]
    assert means["floats"] == 1
    assert means["8 bits by distance"] < means["8 bits, then 2 bits a number"]
    assert means["8 bits, then 2 bits a number"] < means["8 bits, then 4 bits a number"]
    assert means["sign"] < means["sign, first 100, then int8"] <= means["int8"]
    assert [row.n_bytes for row in rows] == [64, 1, 1, 9, 13, 2, 20, 22]
    assert [row.name for row in rows if row.is_rival] == list(means)[-3:]


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize("similarity", ["cosine", "inner", "euclidean"])
def test_rows_are_measured_by_the_search_that_people_use(similarity, centred):
    task = make_task(vectors())
    plan = Plan(similarity, n_bits=(12,), second=(None, 3), first=60, centred=centred)
    by_name = {row.name: row for row in prove(task, plan).rows}
    compressor = Compressor.fit(task.vectors, 12, 3, similarity, centred=centred)
    compressed = compressor.encode(task.vectors)
    found = compressor.search(task.questions, compressed, k=10, first=100).rows
    exact = nearest(task.questions, task.vectors, 10, similarity)
    measured = by_name["12 bits, then 3 bits a number"].scores.neighbours
    np.testing.assert_allclose(measured, neighbour_recall(found, exact), atol=0.11)
    assert abs(measured.mean() - neighbour_recall(found, exact).mean()) < 0.02


def test_codes_are_never_longer_than_the_vectors():
    task = make_task(vectors())
    rows = prove(task, Plan(second=(None,))).rows
    assert [row.n_bits for row in rows if row.is_ours] == [16]
    plan = Plan(n_bits=(8, 17), second=(None,))
    check_refusal("n_bits 17: vectors of 16 numbers have 1 to 16", prove, task, plan)


def off_centre(n_questions, seed=0):
    """Documents whose common part hides that topics are of all lengths, and questions on them."""
    random = np.random.default_rng(seed)
    topics = random.normal(size=(400, 16))
    common = 12 * np.eye(16)[0]
    documents = topics * random.uniform(0.2, 2, (400, 1)) + common
    rows = random.choice(400, n_questions, replace=False)
    asked = topics[rows] + 0.5 * random.normal(size=(n_questions, 16)) + common
    judged = {str(place): {str(row): 1.0} for place, row in enumerate(rows)}
    return Vectors.of(documents), Vectors.of(asked), judged


@pytest.mark.parametrize(("n", "reported", "is_apart"), [(200, 100, True), (39, 39, False)])
def test_half_of_the_questions_choose_what_second_stages_keep(n, reported, is_apart):
    task = make_task(*off_centre(n))
    proof = prove(task, Plan(n_bits=(16,), second=(None, 4, 8)))
    assert proof.n_questions == len(proof.rows[0].scores.ndcg) == reported
    assert proof.centring.is_apart is is_apart
    assert proof.centring.questions == n - reported if is_apart else n
    assert proof.is_centred is proof.centring.is_better is True
    assert proof.centring.difference.lower > 0
    asked = prove(task, Plan(n_bits=(16,), second=(8,), centred=True))
    assert asked.is_centred
    assert asked.centring is None
    assert asked.n_questions == n


def test_neighbours_of_the_encoder_itself_are_kept_without_judgements():
    documents, questions, _ = off_centre(60)
    proof = prove(make_task(documents, questions), Plan(n_bits=(16,), second=(8,)))
    assert not proof.is_centred
    assert not proof.centring.is_judged
    assert proof.centring.plain.mean > proof.centring.centred.mean


def test_distances_stay_the_same_without_a_mean():
    proof = prove(make_task(vectors()), Plan("euclidean", n_bits=(8,), second=(2,)))
    assert proof.centring is None
    assert proof.n_questions == 30


def test_learned_codes_and_questions_have_rows_beside_what_they_are_compared_with(monkeypatch):
    monkeypatch.setattr("channelhash.compression.learning._STEPS", 3)
    monkeypatch.setattr("channelhash.compression.pairs._RATE", 0.05)
    documents, questions, judged = off_centre(60)
    turned = Vectors.of(questions[:][:, ::-1].copy(), questions.ids)
    plan = Plan(n_bits=(8,), second=(None, 4), centred=False, codes=("itq", "learned"))
    proof = prove(make_task(documents, turned, pairs=judged), plan)
    rows = {row.name: row for row in proof.rows}
    before = {row.name: row for row in prove(make_task(documents, turned, judged), plan).rows}
    learned = "floats, questions learned from pairs"
    assert list(rows) == ["floats", learned, *list(before)[1:]]
    assert list(before)[1:7] == [
        *("8 bits by distance", "8 bits", "8 bits, then 4 bits a number"),
        *("8 learned bits by distance", "8 learned bits", "8 learned bits, then 4 bits a number"),
    ]
    for name in ("floats", "sign", "int8", "sign, first 100, then int8"):
        np.testing.assert_array_equal(rows[name].scores.ndcg, before[name].scores.ndcg)
    assert rows[learned].scores.ndcg.mean() > rows["floats"].scores.ndcg.mean() + 0.05
    assert rows[learned].scores.neighbours.mean() == 1 > rows["floats"].scores.neighbours.mean()
    code = "8 bits, then 4 bits a number"
    assert rows[code].scores.ndcg.mean() > before[code].scores.ndcg.mean() + 0.05
    codes = [row.as_dict(rows["floats"])["codes"] for row in rows.values()]
    assert codes == [None] * 2 + ["itq"] * 3 + ["learned"] * 3 + [None] * 3
    assert proof.notes[0] == (
        "questions are learned from 60 pairs of 60 questions, each from those of other questions "
        "alone (five folds)"
    )


def test_questions_of_another_width_are_asked_by_what_pairs_have_taught():
    documents, questions, judged = off_centre(60)
    narrow = Vectors.of(questions[:][:, :12], questions.ids)
    plan = Plan(n_bits=(8,), second=(None,))
    floats, *others = prove(make_task(documents, narrow, pairs=judged), plan).rows
    assert floats.name == "floats, questions learned from pairs"
    assert [row.name for row in others][-3:] == ["sign", "int8", "sign, first 100, then int8"]
    plan = plan._replace(similarity="inner")
    says = "similarity inner: pairs teach cosines"
    check_refusal(says, prove, make_task(documents, questions, pairs=judged), plan)


def topical(n, seed):
    random = np.random.default_rng(seed)
    topics = np.random.default_rng(9).normal(size=(30, 128)) + 0.5
    return (topics[np.arange(n) % 30] + 0.7 * random.normal(size=(n, 128))).astype(np.float32)


@pytest.mark.parametrize("similarity", ["cosine", "euclidean"])
def test_questions_of_another_encoder_are_named(similarity):
    documents = Vectors.of(topical(600, 0))
    own = topical(30, 1)
    plan = Plan(similarity, n_bits=(8,), second=(None,))
    assert not prove(make_task(documents, Vectors.of(own)), plan).notes
    other = np.random.default_rng(2).normal(size=own.shape) * own.std() * 3
    (note,) = prove(make_task(documents, Vectors.of(other)), plan).notes
    assert "of 30 questions are farther from every vector" in note


@pytest.mark.parametrize(
    ("similarity", "n_unit", "is_named"),
    [("inner", 100, True), ("euclidean", 100, True), ("cosine", 100, False), ("inner", 300, False)],
)
def test_vectors_that_were_partly_normalised_are_named(similarity, n_unit, is_named):
    values = vectors()[:].copy()
    values[:n_unit] = prepare(values[:n_unit], "cosine")
    plan = Plan(similarity, n_bits=(8,), second=(None,))
    task = make_task(Vectors.of(values), vectors(n=20, seed=1))
    notes = [note for note in prove(task, plan).notes if "length 1" in note]
    assert notes == (
        [
            f"100 vectors have length 1, 200 have not: by {similarity} these are "
            "compared by their lengths, too; cosine ignores them"
        ]
        if is_named
        else []
    )


def test_lengths_near_1_by_chance_are_not_named():
    values = prepare(vectors()[:], "cosine")
    values *= np.random.default_rng(0).uniform(0.98, 1.02, (300, 1)).astype(np.float32)
    task = make_task(Vectors.of(values))
    assert not prove(task, Plan("inner", n_bits=(8,), second=(None,))).notes


def row_of(n_bytes, neighbours, n=200):
    scores = Scores(np.full(n, neighbours), np.full(n, np.nan), np.full(n, np.nan))
    return Row(f"{n_bytes} B", 8, None, n_bytes, scores, 0.0, 0.0)


@pytest.mark.parametrize(("keep", "chosen"), [(0.8, "8 B"), (0.9, "16 B"), (0.99, None)])
def test_the_smallest_code_that_is_good_enough_is_chosen(keep, chosen):
    rows = [row_of(64, 1.0), row_of(16, 0.95), row_of(8, 0.85), row_of(32, 0.96)]
    found = choose(rows, keep)
    assert (found and found.name) == chosen


def test_what_the_market_does_is_never_chosen():
    rival = replace(row_of(4, 1.0), is_ours=False)
    assert choose([row_of(64, 1.0), rival, row_of(16, 0.95)], 0.9).n_bytes == 16


def test_differences_to_floats_are_question_by_question():
    floats, code = row_of(64, 1.0), row_of(16, 0.9)
    wide = np.linspace(0, 1, 200)
    floats = replace(floats, scores=floats.scores._replace(ndcg=wide))
    code = replace(code, scores=code.scores._replace(ndcg=wide - 0.1))
    values = code.as_dict(floats)
    assert values["ndcg"]["upper"] - values["ndcg"]["lower"] > 0.05
    assert values["ndcg_difference"] == pytest.approx({"mean": -0.1, "lower": -0.1, "upper": -0.1})
    assert "recall" not in values


def test_the_distance_of_questions_is_that_of_its_definition():
    random = np.random.default_rng(0)
    rows = random.normal(size=(60, 12)).astype(np.float32) + 3
    questions = random.normal(size=(7, 12)).astype(np.float32)
    scores = rows @ rows.T
    best = [max(np.delete(scores[row], row)) for row in range(60)]
    nearest = (questions @ rows.T).max(axis=1)
    expected = (np.mean(best) - nearest.mean()) / scores.std()
    assert question_distance(rows, questions, "inner") == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("first", ["learned", "itq"])
def test_what_suits_questions_is_tried_first_and_the_other_too(first, monkeypatch):
    monkeypatch.setattr("channelhash.compression.learning._STEPS", 2)
    vectors = np.random.default_rng(0).normal(size=(200, 12)).astype(np.float32) + 1
    # Copies of vectors are nearer to these than others are; opposite ones are far.
    asked = vectors[:20] if first == "learned" else -vectors[:20]
    task = make_task(Vectors.of(vectors), Vectors.of(asked))
    proof = prove(task, Plan("cosine", n_bits=(8,), second=(None,), codes=("itq", "learned")))
    methods = [row.method for row in proof.rows if row.is_ours]
    assert methods == [first, {"itq": "learned", "learned": "itq"}[first]]
    assert any(note.startswith(f"{first} codes are expected") for note in proof.notes)
