"""Vectors ask: the same answers through Python, the command, HTTP and the exported script."""

import importlib.util
import json
from operator import itemgetter

import numpy as np
import pytest
from fastapi.testclient import TestClient

import channelhash as ch
from channelhash.codes import unpack
from channelhash.compression.compressor import Compressor
from channelhash.compression.models import to_model
from channelhash.indexing.fit import NewCodes
from channelhash.indexing.stores import create_store, read_again
from channelhash.search import open_store
from channelhash.search.query import load_query_encoder, search_store, search_vectors
from channelhash.search.question import SearchOptions
from refusals import check_refusal
from serve.served import app_of, refused
from small_runs import assert_refused, run_command, run_json, run_text
from small_stores import EXTRACTORS, picture_folder, small_model, words

N = 300
random = np.random.default_rng(0)
TOPICS = random.normal(size=(30, 24)) * 2
VALUES = (TOPICS[np.arange(N) % 30] + random.normal(size=(N, 24))).astype(np.float32)
QUESTIONS = (TOPICS[:3] + random.normal(size=(3, 24))).astype(np.float32)


def write_table(path):
    """Vectors with ids, years and the word that each topic has."""
    rows = [
        {"id": f"d{row:03}", "embedding": values, "year": row, "text": f"tale {row % 30}"}
        for row, values in enumerate(VALUES.tolist())
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with stores of vectors ``s``, and of each similarity; and with questions."""
    folder = tmp_path_factory.mktemp("vectors")
    table = write_table(folder / "d.jsonl")
    assert (
        run_command("index", "create", folder / "s", table, "--array", "embedding", "--bits", 16)
        == 0
    )
    for similarity in ("cosine", "inner", "euclidean"):
        address = ch.search.Address.parse(str(folder / similarity))
        to_model(Compressor.fit(VALUES, 16, 4, similarity)).save_pretrained(folder / "model")
        codes = NewCodes(str(folder / "model"))
        create_store(
            address, codes, read_again(address, table, array="embedding"), projections=True
        )
    to_model(Compressor.fit(VALUES, 16, None)).save_pretrained(folder / "model")
    address = ch.search.Address.parse(str(folder / "bits"))
    create_store(address, codes, read_again(address, table, array="embedding"), projections=False)
    np.save(folder / "q.npy", QUESTIONS)
    np.save(folder / "q1.npy", QUESTIONS[:1])
    return folder


def answered(hits):
    return [hit.id for hit in hits], [hit.distance for hit in hits], [h.similarity for h in hits]


def assert_same(found, wanted):
    ids, distances, similarities = found
    assert ids == wanted[0]
    assert distances == wanted[1]
    if wanted[2][0] is None:
        assert not similarities or not any(similarities)
    else:
        np.testing.assert_allclose(similarities, wanted[2], rtol=1e-5, atol=1e-5)


def by_command(capsys, store, file):
    answers = run_json(capsys, "search", store, "--vector", file)["answers"]
    return [
        tuple([hit[key] for hit in answer["results"]] for key in ("id", "distance", "similarity"))
        for answer in answers
    ]


@pytest.mark.parametrize("name", ["s", "cosine", "inner", "euclidean", "bits"])
def test_python_command_and_http_give_the_same_ten_answers(name, folder, capsys):
    place = folder / name
    with open_store(place) as store:
        model = load_query_encoder(store)
        wanted = [answered(search_store(store, vector=row)) for row in QUESTIONS]
        assert [len(ids) for ids, _, _ in wanted] == [10] * 3
        for found, expected in zip(search_vectors(store, QUESTIONS), wanted, strict=True):
            assert_same(answered(found), expected)
        index = ch.index(folder / "d.jsonl", place, array="embedding")
        assert index.indexed.unchanged == N
        for row, expected in zip(QUESTIONS, wanted, strict=True):
            assert_same(answered(index.search(vector=row)), expected)
        for found, expected in zip(
            by_command(capsys, place, folder / "q.npy"), wanted, strict=True
        ):
            assert_same(found, expected)
        (one,) = wanted[:1]
        hits = run_json(capsys, "search", place, "--vector", folder / "q1.npy")["results"]
        assert_same([[hit[key] for hit in hits] for key in ("id", "distance", "similarity")], one)
        with TestClient(app_of(store, model)) as client:
            for row, expected in zip(QUESTIONS, wanted, strict=True):
                hits = client.post("/search", json={"vector": row.tolist()}).json()["results"]
                found = [[hit[key] for hit in hits] for key in ("id", "distance", "similarity")]
                assert_same(found, expected)
            answers = client.post("/search/vectors", json={"vectors": QUESTIONS.tolist()}).json()
        for found, expected in zip(answers["answers"], wanted, strict=True):
            assert_same((found["ids"], found["distances"], found["similarities"]), expected)


@pytest.mark.parametrize("name", ["s", "cosine", "inner", "euclidean", "bits"])
def test_the_exported_script_gives_the_same_ten_answers(name, folder, capsys):
    run_text(capsys, "export", folder / name)
    file = folder / name / "exported" / "vector" / "codes.py"
    spec = importlib.util.spec_from_file_location("exported_codes", file)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    codes, rows = script.encode(VALUES)
    with open_store(folder / name) as store:
        for question in QUESTIONS:
            wanted = [hit.id for hit in search_store(store, vector=question)]
            found = script.search(question, codes, rows)
            assert [f"d{row:03}" for row in found] == wanted


def decoded(store, items):
    return store.stage.of("vector").decode(np.stack([item.projections["vector"] for item in items]))


@pytest.mark.parametrize(
    ("name", "compare"),
    [
        ("cosine", lambda rows, question: rows @ (question / np.linalg.norm(question))),
        ("inner", lambda rows, question: rows @ question),
        ("euclidean", lambda rows, question: -((rows - question) ** 2).sum(axis=1)),
    ],
)
def test_a_similarity_is_that_of_the_question_and_the_vector_that_is_kept(name, compare, folder):
    with open_store(folder / name) as store:
        assert store.stage.similarity == name
        (hits,) = search_vectors(store, QUESTIONS[:1], SearchOptions(k=N))
        found = {hit.id: hit.similarity for hit in hits}
        items = store.get(list(found))
        wanted = compare(decoded(store, items).astype(np.float64), QUESTIONS[0])
    np.testing.assert_allclose(list(found.values()), wanted, rtol=1e-5, atol=1e-5)
    assert list(found.values()) == sorted(found.values(), reverse=True)


def test_items_without_a_compared_vector_have_no_similarity(folder):
    with open_store(folder / "bits") as store:
        (hit,) = search_store(store, SearchOptions(k=1), vector=QUESTIONS[0])
        assert hit.similarity is None
        assert hit.as_dict()["similarity"] is None
    with open_store(folder / "cosine") as store:
        hits = search_store(store, SearchOptions(k=3), text="tale 7", by="words")
        assert [hit.similarity for hit in hits] == [None] * len(hits)


@pytest.mark.parametrize("radius", [None, 5])
def test_without_a_second_stage_the_surest_bits_that_differ_count_most(radius, folder):
    """By the slow path: the numbers |u| of the bits that differ, for every item."""
    with open_store(folder / "bits") as store:
        outputs = load_query_encoder(store).outputs("vector", QUESTIONS)
        items = store.get(store.ids())
        bits = unpack(np.stack([item.codes["vector"] for item in items]), 16)
        options = SearchOptions(radius=radius)
        for question, row in zip(QUESTIONS, outputs.astype(np.float64), strict=True):
            differs = bits != (row >= 0)
            distances = differs.sum(axis=1)
            keys = np.where(differs, np.abs(row), 0).sum(axis=1)
            order = sorted(zip(keys, distances, [item.id for item in items], strict=True))
            if radius is None:
                wanted = [name for _, _, name in order[:10]]
            else:
                near = [each for each in order if each[1] <= radius]
                wanted = [name for _, _, name in sorted(near, key=itemgetter(1, 0, 2))]
            found = search_store(store, options, vector=question)
            assert [hit.id for hit in found] == wanted


def test_many_vectors_are_answered_a_line_an_answer(folder, capsys):
    words = ("search", folder / "s", "--vector", folder / "q.npy", "-k", 2)
    with open_store(folder / "s") as store:
        wanted = search_vectors(store, QUESTIONS, SearchOptions(k=2))
    lines = [
        [str(number), hit.id, str(hit.distance), f"{hit.similarity:.4f}"]
        for number, hits in enumerate(wanted)
        for hit in hits
    ]
    assert [line.split("\t") for line in run_text(capsys, *words).splitlines()] == lines
    quiet = run_text(capsys, *words, "-q").splitlines()
    assert [line.split("\t") for line in quiet] == [line[:2] for line in lines]
    answers = run_json(capsys, *words)["answers"]
    assert [answer["question"] for answer in answers] == ["0", "1", "2"]
    assert all(set(answer) >= {"results", "close", "narrowed"} for answer in answers)
    text = run_text(capsys, *words, "--where", "year >= 290")
    assert len(text.splitlines()) == 6
    assert all(line.split("\t")[1] >= "d290" for line in text.splitlines())


def test_one_vector_is_answered_as_words_are(folder, capsys):
    words = ("search", folder / "s", "--vector", folder / "q1.npy", "-k", 3)
    assert run_text(capsys, *words).startswith("3 answers\n")
    with open_store(folder / "s") as store:
        wanted = [hit.id for hit in search_store(store, SearchOptions(k=3), vector=QUESTIONS[0])]
    assert run_text(capsys, *words, "--quiet").splitlines() == wanted
    few = run_json(capsys, *words, "--where", "year < 100")["results"]
    assert [hit["metadata"]["year"] < 100 for hit in few] == [True] * 3


def test_words_beside_a_vector_are_looked_for_as_words(folder, capsys):
    words = ("search", folder / "s", '"tale 7"', "--vector", folder / "q1.npy", "--json", "-k", 20)
    capsys.readouterr()
    assert run_command(*words) == 0
    out, err = capsys.readouterr()
    assert err.startswith("what you wrote is looked for by its words: these codes are of vectors")
    found = [hit["id"] for hit in json.loads(out)["results"]]
    with open_store(folder / "s") as store:
        alone = [hit.id for hit in search_store(store, vector=QUESTIONS[0])]
        by_words = [hit.id for hit in search_store(store, text='"tale 7"', by="words")]
    assert len(by_words) == 10
    assert set(by_words + alone) == set(found)


def test_items_and_vectors_ask_together(folder):
    with open_store(folder / "cosine") as store:
        model = load_query_encoder(store)
        (alone,) = search_vectors(store, QUESTIONS[:1], model=model)
        best = alone[0].id
        away = search_store(store, vector=QUESTIONS[0], minus_like=[best], model=model)
        assert best not in [hit.id for hit in away]
        other = search_store(store, like="d007", vector=QUESTIONS[0], model=model)
        assert "d007" in [hit.id for hit in other][:2]
        # a vector with itself is the same question
        item = store.get(["d007"])[0]
        vector = store.stage.of("vector").decode(item.projections["vector"][None])[0]
        twice = search_store(store, like="d007", vector=vector, model=model)
        once = search_store(store, like="d007", model=model)
        assert twice[0].id == once[0].id == "d007"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (np.full((1, 24), np.nan), "row 0 (id 0): is not finite, or too large for float32"),
        (np.eye(24)[:2] * [[1], [0]], "row 1 (id 1): is zero, which is near nothing; take such"),
        (np.ones((1, 1, 24)), "holds an array (1, 1, 24), expected vectors (n, d), a row each"),
    ],
)
def test_files_of_other_vectors_do_not_ask(rows, says, folder, tmp_path, capsys):
    np.save(tmp_path / "q.npy", rows)
    assert_refused(capsys, "search", folder / "s", "--vector", tmp_path / "q.npy", says=says)


def test_a_file_of_one_vector_asks_as_a_row_does(folder, tmp_path, capsys):
    found = []
    for rows in (QUESTIONS[0], QUESTIONS[:1]):
        np.save(tmp_path / "q.npy", rows)
        found.append(run_json(capsys, "search", folder / "s", "--vector", tmp_path / "q.npy"))
    assert found[0]["results"] == found[1]["results"]


@pytest.mark.parametrize(
    ("vectors", "says"),
    [
        (np.ones((2, 25)), r"vector features are \(n, 24\) for this model, not \(.*, 25\)"),
        (np.full((1, 24), np.nan), "vectors: row 0 is not finite"),
        (np.ones(24), r"vectors: \(n, d\) numbers are expected, not \(24,\)"),
        (np.array([["a"]]), r"vectors: \(n, d\) numbers are expected"),
    ],
)
def test_other_vectors_do_not_ask(vectors, says, folder):
    with open_store(folder / "s") as store:
        check_refusal(says, search_vectors, store, vectors)


def test_a_vector_of_zeros_is_refused(folder):
    with open_store(folder / "s") as store:
        says = "vector: row 0 is zero, which is near nothing"
        check_refusal(says, search_store, store, vector=np.zeros(24))
        says = "vectors: row 1 is zero, which is near nothing"
        check_refusal(says, search_vectors, store, np.eye(24)[:2] * [[1], [0]])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--sheet", "a.png"), "--sheet and --open: show the answers to one vector"),
        (("--open",), "--sheet and --open: show the answers to one vector"),
        (("--by", "words"), "--by words: the question has no words"),
        (("--modality", "image"), "holds vector codes, no image codes"),
        (("--minus", "a tale"), "these codes are of vectors, and nothing here turns a text into"),
        (("--array", "q"), "q.npy: holds one array, without a name; leave --array out"),
    ],
)
def test_options_that_vectors_do_not_take_are_refused(words, says, folder, capsys):
    words = ("search", folder / "s", "--vector", folder / "q.npy", *words)
    assert_refused(capsys, *words, says=says)


def test_an_array_is_that_of_a_file_of_vectors(folder, capsys):
    says = "--array: says what of a file of vectors asks; name it with --vector"
    assert_refused(capsys, "search", folder / "s", "a tale", "--array", "q", says=says)
    np.savez(folder / "q.npz", a=QUESTIONS[:1], b=QUESTIONS[1:2])
    words = ("search", folder / "s", "--vector", folder / "q.npz")
    assert_refused(capsys, *words, says="several arrays of vectors: a, b; name one with --array")
    found = run_json(capsys, *words, "--array", "b")["results"]
    with open_store(folder / "s") as store:
        assert found[0]["id"] == search_store(store, vector=QUESTIONS[1])[0].id


def test_a_store_of_images_takes_no_vectors(folder, tmp_path, capsys):
    model = small_model(tmp_path)
    picture_folder(tmp_path / "photos", 3)
    words = ("index", "create", tmp_path / "s", tmp_path / "photos")
    run_text(capsys, *words, "--encoder", tmp_path / "model")
    words = ("search", tmp_path / "s", "--vector", folder / "q1.npy")
    says = "--vector: the encoder of this store reads the images themselves; ask with one of these"
    assert_refused(capsys, *words, says=says)
    with open_store(tmp_path / "s") as store, TestClient(app_of(store, model)) as client:
        for path, body in (
            ("/search", {"vector": [1.0, 2.0]}),
            ("/search/vectors", {"vectors": [[1.0, 2.0]]}),
        ):
            refused(client.post(path, json=body), 422, says="the encoder of this store reads the")


@pytest.fixture(scope="module")
def colours_of_texts(tmp_path_factory):
    """An index of features of texts, whose extractor is named."""
    folder = tmp_path_factory.mktemp("colours")
    features = words(["red", "green", "blue", "red blue"] * 5)
    features += np.random.default_rng(0).random((20, 3)) / 100
    np.savez(folder / "f.npz", text=features)
    encoder = {"text": EXTRACTORS["text"]}
    options = {"codes": "itq", "n_bits": 3, "encoder": encoder, "trust_code": True}
    return ch.index(folder / "f.npz", folder / "s", **options)


def test_words_and_a_vector_ask_together_where_texts_are_encoded(colours_of_texts):
    """Both are encoded, as those of one modality."""
    store, model = colours_of_texts.store, colours_of_texts.encoder
    blue = words(["blue"])[0]
    hits = colours_of_texts.search("red", vector=blue, k=5)
    assert {hit.id for hit in hits} == {"3", "7", "11", "15", "19"}
    alone = colours_of_texts.search(vector=blue, k=5)
    assert {hit.id for hit in alone} == {"2", "6", "10", "14", "18"}
    with TestClient(app_of(store, model)) as client:
        for body, wanted in (
            ({"vector": blue.tolist(), "text": "red"}, hits),
            ({"vector": blue.tolist()}, alone),
        ):
            found = client.post("/search", json=body | {"k": 5}).json()
            assert [hit["id"] for hit in found["results"]] == [hit.id for hit in wanted], found


@pytest.mark.parametrize("modality", ["image", "text"])
def test_features_of_a_modality_are_asked_as_that_modality(modality, tmp_path):
    np.savez(tmp_path / "f.npz", **{modality: VALUES})
    index = ch.index(tmp_path / "f.npz", tmp_path / "s", n_bits=16)
    wanted = [hit.id for hit in index.search(vector=VALUES[7])]
    assert wanted[0] == "7"
    with TestClient(app_of(index.store, index.encoder)) as client:
        found = client.post("/search", json={"vector": VALUES[7].tolist()}).json()
        assert [hit["id"] for hit in found["results"]] == wanted, found
