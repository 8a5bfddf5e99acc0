"""Maps of questions that pairs teach: what they find, what they never see, and that compressors,
stores and servers ask by them.
"""

from dataclasses import replace

import numpy as np
import pytest
from fastapi.testclient import TestClient

import channelhash as ch
from channelhash.compression import pairs as teaching
from channelhash.compression.compressor import Compressor, prepare
from channelhash.compression.models import to_model
from channelhash.compression.task import Pairs
from channelhash.data.vectors import Vectors
from channelhash.indexing.stores import create_store
from channelhash.indexing.vectors import source_of
from channelhash.models import load_model
from channelhash.search import Address, SearchOptions, search_store, search_vectors
from refusals import check_refusal
from serve.served import app_of, refused

N = 200


@pytest.fixture
def quick(monkeypatch):
    """Large steps, and few."""
    monkeypatch.setattr(teaching, "_RATE", 0.05)
    monkeypatch.setattr(teaching, "_STEPS", 60)


def rotated(width=12):
    """Questions that are their documents, turned into a space of their own."""
    random = np.random.default_rng(0)
    documents = prepare(random.normal(size=(N, 12)), "cosine")
    turn = np.linalg.qr(random.normal(size=(width, width)))[0][:12]
    questions = documents @ turn + 0.03 * random.normal(size=(N, width))
    rows = np.arange(N)
    return questions.astype(np.float32), documents, Pairs(rows, rows, np.ones(N, np.float32))


def found(questions, documents) -> float:
    """The share of questions whose document is the nearest."""
    return (np.argmax(questions @ documents.T, axis=1) == np.arange(N)).mean()


@pytest.mark.parametrize("width", [12, 20])
def test_questions_find_their_documents_by_what_others_have_taught(width, quick):
    questions, documents, pairs = rotated(width)
    shown = []
    moved = teaching.cross_fit(
        questions, Vectors.of(documents), pairs, progress=lambda *done: shown.append(done)
    )
    assert found(questions[:, :12], documents) < 0.1
    assert found(moved, documents) > 0.9
    assert shown == [(fold, 5) for fold in range(1, 6)]


def test_a_question_learns_nothing_from_its_own_pairs(monkeypatch):
    monkeypatch.setattr(teaching, "_STEPS", 3)
    questions, documents, pairs = rotated()
    other = pairs._replace(documents=np.where(pairs.documents == 7, 9, pairs.documents))
    first, second = (teaching.cross_fit(questions, documents, each) for each in (pairs, other))
    is_equal = (first == second).all(axis=1)
    assert is_equal[7]
    assert is_equal.sum() == N / 5  # its fold


def test_two_questions_with_pairs_teach_all_others(monkeypatch):
    monkeypatch.setattr(teaching, "_STEPS", 3)
    questions, documents, pairs = rotated()
    for chosen in range(2, 9):
        few = pairs.of(np.isin(np.arange(N), [0, chosen]))
        moved = teaching.cross_fit(questions, documents, few)
        assert np.isfinite(moved).all()
        assert not np.allclose(moved, prepare(questions, "cosine"))


def test_pairs_of_some_questions():
    pairs = Pairs(np.array([0, 2, 2, 1]), np.array([5, 6, 7, 8]), np.float32([1, 2, 3, 4]))
    kept = pairs.of(np.array([True, False, True]))
    assert [values.tolist() for values in kept] == [[0, 2, 2], [5, 6, 7], [1, 2, 3]]


def test_batches_have_the_weights_of_their_pairs_and_other_documents(monkeypatch):
    monkeypatch.setattr(teaching, "_ASKED", 3)
    monkeypatch.setattr(teaching, "_OTHERS", 4)
    random = np.random.default_rng(0)
    weights = {(question, question * 3 % 11): question + 0.5 for question in range(0, 9, 2)}
    weights |= {(4, 9): 3.0, (4, 10): 0.25}
    pairs = Pairs(*map(np.array, zip(*weights, strict=True)), np.float32([*weights.values()]))
    for _ in range(5):
        asked, documents, relevance = teaching._draw_pairs(
            np.unique(pairs.questions), 30, pairs, random
        )
        assert (len(set(asked)), relevance.shape) == (3, (3, len(documents)))
        assert set(asked) <= {question for question, _ in weights}
        theirs = {document for question, document in weights if question in asked}
        assert theirs <= set(documents)
        assert len(theirs) < len(set(documents)) == len(documents) <= len(theirs) + 4
        expected = [[weights.get((a, b), 0) for b in documents] for a in asked]
        np.testing.assert_array_equal(relevance, expected)


def test_a_document_of_more_weight_is_nearer(quick):
    documents = np.eye(4, dtype=np.float32)
    rows = np.array([0, 0, 1]), np.array([1, 2, 3])
    learned = teaching.learn_question_map(
        documents[:2], documents, Pairs(*rows, np.float32([1, 5, 1]))
    )
    assert learned[0, 2] > learned[0, 1] > learned[0, 3]


@pytest.fixture(params=[12, 20])
def asking(request, quick):
    """A compressor of documents, with what pairs have taught, questions and documents."""
    questions, documents, pairs = rotated(request.param)
    plain = Compressor.fit(documents, 12, 4)
    return plain.with_questions(questions, documents, pairs), questions[:9], documents


def test_compressors_stores_and_servers_ask_by_what_pairs_have_taught(asking, tmp_path):
    compressor, questions, documents = asking
    compressed = compressor.encode(documents)
    expected = compressor.search(questions, compressed, k=5, first=N)
    assert expected.rows[:, 0].tolist() == list(range(9))
    plain = replace(compressor, question_map=None)
    moved = prepare(prepare(questions, "cosine") @ compressor.question_map, "cosine")
    assert (plain.search(moved, compressed, k=5, first=N).rows == expected.rows).all()
    compressor.save(tmp_path / "codes")
    loaded = Compressor.load(tmp_path / "codes")
    np.testing.assert_array_equal(loaded.question_map, compressor.question_map)
    again = loaded.search(questions, loaded.encode(documents), k=5, first=N)
    assert (again.scores == expected.scores).all()
    own, others = tmp_path / "a.store", tmp_path / "b.store"
    for place, each in ((own, compressor), (others, plain)):
        source = source_of(Vectors.of(documents), tmp_path / "documents")
        create_store(Address.parse(str(place)), to_model(each), source, projections=True)
    with ch.open_store(own) as store, ch.open_store(others) as other:
        for hits, rows, scores in zip(
            search_vectors(store, questions, SearchOptions(k=5)), *expected, strict=True
        ):
            assert [int(hit.id) for hit in hits] == rows.tolist()
            np.testing.assert_allclose([hit.similarity for hit in hits], scores, rtol=1e-4)
        near, same = (
            [(hit.id, hit.similarity) for hit in search_store(each, like="7")]
            for each in (store, other)
        )
        assert near == same
        with TestClient(app_of(store, load_model(own))) as client:
            body = {"vectors": questions.tolist(), "k": 5}
            answers = client.post("/search/vectors", json=body).json()["answers"]
            assert [[int(name) for name in answer["ids"]] for answer in answers] == (
                expected.rows.tolist()
            )
            answer = client.post("/search", json={"vector": [1.0] * 7})
            refused(answer, 422, says=f"question features are (n, {questions.shape[1]}) for this")


@pytest.mark.parametrize("similarity", ["inner", "euclidean"])
def test_pairs_teach_cosines_alone(similarity):
    compressor = Compressor.fit(rotated()[1], 8, None, similarity)
    says = f"similarity {similarity}: pairs teach cosines"
    check_refusal(says, compressor.with_questions, *rotated())
