"""One plan of a search: what it has to encode, what it answers with the outputs, and that every face
follows it alike.
"""

from types import SimpleNamespace

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

import channelhash as ch
from channelhash.search import plan as module
from channelhash.search.hits import Hits, answer
from channelhash.search.plan import Search
from channelhash.search.query import search_store
from channelhash.search.question import Query, Question, SearchOptions, UnknownItemError
from channelhash.serve.app import create_app
from channelhash.serve.service import Service
from channelhash.text.spelling import Correction
from picture_runs import photograph
from refusals import check_refusal
from small_runs import run_json

N_BITS = 64


@pytest.fixture
def store(tmp_path):
    """Three images, of which the second is a copy of the first, and a text."""
    with ch.open_store(tmp_path / "store", n_bits=N_BITS) as opened:
        codes = np.zeros((3, N_BITS // 8), np.uint8)
        codes[2] = 255
        metadata = []
        for name, drawn in (("a", 0), ("copy", 0), ("other", 1)):
            photograph(drawn).save(tmp_path / f"{name}.png")
            metadata.append({"image": str(tmp_path / f"{name}.png"), "text": f"words {name}"})
        names = ["a", "copy", "other"]
        opened.add(names, {"image": codes, "text": codes}, metadata=metadata)
        opened.add(["text"], codes[:1], "text")
        yield opened


@pytest.mark.parametrize(
    ("question", "options", "expected"),
    [
        (Question("a dog"), {}, {"text": ["a dog"]}),
        (Question('a dog "at sea"^2 -cat'), {}, {"text": ["a dog", "at sea", "cat"]}),
        (Question("a dog", minus=["cat"], like="a"), {}, {"text": ["a dog", "cat"]}),
        (Question("a dog -cat"), {"by": "words"}, {}),
        (Question(like="a", minus_like=["other"]), {}, {}),
        (Question(code=np.zeros(N_BITS // 8, np.uint8)), {}, {}),
    ],
)
def test_a_plan_names_what_has_to_be_encoded(store, question, options, expected):
    assert Search.of(store, question, SearchOptions(**options)).to_encode == expected


def test_images_are_encoded_apart_from_texts(store):
    wanted, unwanted = Image.new("RGB", (9, 9)), Image.new("RGB", (8, 8))
    question = Question("a dog", image=wanted, minus=[unwanted, "cat"])
    expected = {"text": ["a dog", "cat"], "image": [wanted, unwanted]}
    assert Search.of(store, question).to_encode == expected


def test_outputs_belong_to_the_parts_in_their_order(store):
    question = Question("left", minus=["right"], like="other")
    rows = np.random.default_rng(0).normal(size=(2, N_BITS)).astype(np.float32)
    hits = Search.of(store, question, SearchOptions(by="image")).answer({"text": rows})
    ones = np.ones(N_BITS)
    lengths = np.linalg.norm(rows, axis=1)
    added = rows[0] / lengths[0] + ones / np.linalg.norm(ones) - rows[1] / lengths[1]
    assert hits.query.code.tobytes() == ch.codes.pack(added[None] >= 0).tobytes()
    assert (hits.query.words, hits.query.without) == ("left", ("right",))


@pytest.mark.parametrize(
    ("where", "says"),
    [
        ("make = 'Cannon'", "no item has make 'Cannon'; there are Canon (2), b0 (1), b1 (1), b2 "),
        ("make IN ('x', 'y') AND label = 'a'", "make 'x' or 'y'; there are Canon (2), b0 (1), b1"),
        ("label = 'dgo'", "no item has label 'dgo'; there are dog (1), cat (1)"),
        ("label = 'dog' AND place LIKE 'b%'", "no item has place 'b%'; there are Rome (1)"),
        ("NOT make = 'Canon' AND place = 'Rome'", ""),
        ("year > 2000", ""),
        ("text = 'dog'", ""),
    ],
)
def test_a_filter_without_answers_names_the_values_that_there_are(store, where, says):
    store.update(["a", "copy"], [{"make": "Canon", "year": 1999}] * 2)
    store.update(["a", "copy"], [{"labels": ["dog"], "place": "Rome"}, {"labels": ["cat"]}])
    store.add([f"m{row}" for row in range(9)], np.zeros((9, N_BITS // 8), np.uint8))
    store.update([f"m{row}" for row in range(9)], [{"make": f"b{row}"} for row in range(9)])
    options = SearchOptions(where=where)
    hits = search_store(store, options, like="a")
    with TestClient(create_app(Service(store))) as client:
        served = client.post("/search", json={"id": "a", "where": where}).json()
    assert (list(hits), says in hits.note, bool(hits.note)) == ([], True, bool(says))
    assert (served["results"], served["note"]) == ([], hits.note)
    assert hits.note.endswith(", …") == ("b0" in says)


def test_a_stored_item_and_a_code_alone_are_known_by_their_bits(store):
    item = store.get(["other"])[0]
    for question in (Question(like="other"), Question(code=item.codes["image"])):
        hits = Search.of(store, question).answer()
        assert hits.query.outputs is None
        assert hits[0].id == "other"


def test_an_item_asks_with_another_code_only_where_none_is_named(store):
    assert Search.of(store, Question(like="text")).answer().query.modality == "text"
    question = Question(like="text", like_modality="image")
    check_refusal("^like text: has no image code, only text$", Search.of, store, question)


@pytest.mark.parametrize(
    "question", [Question(like="nobody"), Question("a", minus_like=["nobody"])]
)
def test_an_unknown_item_is_an_error_of_its_own(store, question):
    with pytest.raises(UnknownItemError, match="has no item with this id") as error:
        Search.of(store, question)
    assert error.value.item_id == "nobody"


@pytest.mark.parametrize(
    ("sureness", "fit", "better", "is_suggested"),
    [
        (3.0, 0.5, 0.5, True),
        (3.0, 0.8, 0.5, False),
        (-1.0, 0.5, 0.9, True),
        (-1.0, 0.5, 0.6, False),
        (1.0, 0.5, 0.5, False),
    ],
)
@pytest.mark.parametrize("rival", [None, -2.5, 0.5])
def test_a_correction_is_suggested_if_words_and_answers_make_it_sure(
    store, monkeypatch, sureness, fit, better, is_suggested, rival
):
    meant = [Correction(sureness, "a dog")]
    if rival is not None:
        meant.append(Correction(sureness + rival, "a dig"))
    monkeypatch.setattr(module, "has_unknown_words", lambda encoder, text: True)
    spelling = SimpleNamespace(corrections=lambda text: meant)
    monkeypatch.setattr(module, "_spelling", lambda store, text: spelling)
    plan = Search.of(store, Question("a dgo", minus=["cat"]))
    plans = plan.corrections(None)
    assert plans[0].to_encode == {"text": ["a dog", "cat"]}
    found, others = Hits(), Hits()
    found.best_fit = fit
    others.best_fit = better
    monkeypatch.setattr(module, "answer", lambda *_: others)
    outputs = {"text": np.ones((2, N_BITS), np.float32) * [[1], [-1]]}
    plan.suggest_to(found, [(each, outputs) for each in plans])
    assert found.suggestion == ("a dog" if is_suggested and rival != 0.5 else "")


def test_known_words_are_not_corrected(store):
    assert Search.of(store, Question("a dgo")).corrections(None) == []


@pytest.mark.parametrize(
    ("options", "is_folded"),
    [
        ({}, True),
        ({"by": "words"}, True),
        ({"by": "all"}, True),
        ({"collapse": True}, True),
        ({"collapse": 0}, True),
        ({"collapse": False}, False),
        ({"radius": N_BITS}, False),
        ({"radius": N_BITS, "collapse": True}, True),
        ({"modality": "text"}, False),
        ({"by": "text"}, False),
    ],
)
def test_near_copies_fold_by_default_where_images_are_searched(store, options, is_folded):
    query = Query(np.zeros(N_BITS // 8, np.uint8), words="words")
    hits = answer(store, query, SearchOptions(**options))
    folded = {hit.id: hit.duplicates for hit in hits}
    assert folded.get("a") == (["copy"] if is_folded else None)
    assert ("copy" in folded) is not is_folded


def test_nothing_folds_where_the_store_knows_no_images(tmp_path):
    codes = np.zeros((2, 8), np.uint8)
    with ch.open_store(tmp_path / "store", n_bits=N_BITS) as bare:
        bare.add(["a", "b"], codes, metadata=[{"text": "a"}, {"text": "b"}])
        assert [hit.duplicates for hit in search_store(bare, like="a")] == [None, None]


@pytest.mark.parametrize("asked", [{}, {"collapse": False}, {"collapse": True}, {"radius": 3}])
def test_every_face_folds_alike(store, asked, capsys):
    expected = search_store(store, SearchOptions(**asked), like="a")
    with TestClient(create_app(Service(store))) as client:
        for _ in range(2):  # the second search may be a quick one
            response = client.post("/search", json={"id": "a", **asked})
            results = response.json()["results"]
            folded = [(result["id"], result["duplicates"]) for result in results]
            assert folded == [(hit.id, hit.duplicates) for hit in expected]
    options = {"collapse": "--collapse", "radius": "--radius"}
    words = []
    for name, value in asked.items():
        words += ["--no-collapse"] if value is False else [options[name]]
        words += [str(value)] if name == "radius" else []
    results = run_json(capsys, "search", store.address, "--like", "a", *words)["results"]
    folded = [(result["id"], result.get("duplicates")) for result in results]
    assert folded == [(hit.id, hit.duplicates) for hit in expected]
