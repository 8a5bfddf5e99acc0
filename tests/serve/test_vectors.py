"""A server of a store of vectors: what requests with vectors get."""

import io
import json

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

import channelhash as ch
from channelhash.search import open_store
from channelhash.serve.fields import MOST
from serve.served import TOKEN, app_of, refused

N = 60
VALUES = np.random.default_rng(0).normal(size=(N, 8)).astype(np.float32)
QUESTION = (VALUES[7] + 0.1).tolist()


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Vectors with texts and years."""
    folder = tmp_path_factory.mktemp("vectors")
    rows = [
        {"id": f"d{row:02}", "v": values, "text": f"tale {row}", "year": 2000 + row}
        for row, values in enumerate(VALUES.tolist())
    ]
    (folder / "v.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ch.index(folder / "v.jsonl", folder / "s", array="v", n_bits=12)


@pytest.fixture(scope="module")
def client(index):
    app = app_of(index.store, index.encoder, token=TOKEN)
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


def search(client, **body):
    answer = client.post("/search", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_vector_asks(client, index):
    found = search(client, vector=QUESTION, k=3, where="year < 2020")
    assert found["results"][0]["id"] == "d07"
    assert all(result["metadata"]["year"] < 2020 for result in found["results"])
    parts = [(part["kind"], part["value"]) for part in found["understood"]]
    assert parts == [("vector", "8 numbers"), ("where", "year < 2020")]
    similarities = [result["similarity"] for result in found["results"]]
    assert similarities == sorted(similarities, reverse=True)
    assert 0.9 < similarities[0] < 1.01


BAD = {
    "two queries": ({"vector": [1.0], "id": "d07"}, "id and vector are several queries"),
    "a code, too": ({"vector": [1.0], "code": "0000"}, "code and vector are several queries"),
    "another width": (
        {"vector": [1.0] * 9},
        "vector features are (n, 8) for this model, not (1, 9",
    ),
    "zero": ({"vector": [0.0] * 8}, "vector: row 0 is zero, which is near nothing"),
    "no numbers": ({"vector": []}, "vector: "),
    "texts": ({"vector": ["1"] * 8}, "vector"),
    "too many numbers": ({"vector": [1] * (MOST["numbers"] + 1)}, "vector: "),
    "too large": ({"vector": [1e300] * 8}, "vector"),
    "an image is searched": ({"vector": [1.0] * 8, "modality": "image"}, "no image codes"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_vectors_are_refused_in_one_line(name, client):
    body, says = BAD[name]
    answer = client.post("/search", json=body)
    refused(answer, 422, says=says)


BAD_LISTS = {
    "none": ({"vectors": []}, "vectors"),
    "one vector": ({"vectors": [1.0, 2.0]}, "vectors"),
    "two widths": ({"vectors": [[1.0] * 8, [1.0] * 7]}, "vectors: are of 7 and of 8 numbers"),
    "another width": (
        {"vectors": [[1.0] * 7]},
        "vector features are (n, 8) for this model, not (1, 7",
    ),
    "zero": ({"vectors": [[1.0] * 8, [0.0] * 8]}, "vectors: row 1 is zero"),
    "too large": ({"vectors": [[1e300] * 8]}, "vectors: row 0 is not finite"),
    "an empty one": ({"vectors": [[]]}, "vectors"),
    "texts": ({"vectors": [["a"] * 8]}, "vectors"),
    "too many": ({"vectors": [[1.0] * 8] * (MOST["vectors"] + 1)}, "vectors"),
    "too many numbers": ({"vectors": [[1.0] * (MOST["numbers"] + 1)]}, "vectors"),
    "k": ({"vectors": [QUESTION], "k": 0}, "k"),
    "too large a k": ({"vectors": [QUESTION], "k": 1001}, "k"),
    "a filter": ({"vectors": [QUESTION], "where": "year <"}, "where"),
    "a modality": ({"vectors": [QUESTION], "modality": "image"}, "no image codes"),
    "an unknown key": ({"vectors": [QUESTION], "radius": 3}, "radius"),
}


@pytest.mark.parametrize("name", BAD_LISTS)
def test_bad_lists_of_vectors_are_refused_in_one_line(name, client):
    body, says = BAD_LISTS[name]
    answer = client.post("/search/vectors", json=body)
    refused(answer, 422, says=says)


def test_many_vectors_are_answered_in_their_order(client):
    body = {"vectors": VALUES[[41, 57, 57, 50]].tolist(), "k": 2, "where": "year >= 2040"}
    found = client.post("/search/vectors", json=body).json()["answers"]
    assert [answer["ids"][0] for answer in found] == ["d41", "d57", "d57", "d50"]
    assert all(name >= "d40" for answer in found for name in answer["ids"])
    assert [len(values) for answer in found for values in answer.values()] == [2] * 12
    body |= {"where": "year > 3000"}
    found = client.post("/search/vectors", json=body).json()["answers"]
    assert [answer["ids"] for answer in found] == [[]] * 4


def test_as_many_numbers_may_ask_as_the_limits_say(client):
    """A body as large as an upload; one that is larger is refused before it is read."""
    questions = np.random.default_rng(1).normal(size=(MOST["vectors"], 8)).tolist()
    answer = client.post("/search/vectors", json={"vectors": questions, "k": 1})
    assert len(answer.request.content) > 100_000
    assert len(answer.json()["answers"]) == MOST["vectors"]
    body = b'{"vectors":[[' + b"0," * 8_000_000 + b"0]]}"
    answer = client.post(
        "/search/vectors", content=body, headers={"Content-Type": "application/json"}
    )
    refused(answer, 413, says="the request is larger than 16 MB")


def test_without_a_model_vectors_do_not_ask(index):
    with open_store(index.store.address) as store, TestClient(app_of(store)) as client:
        answer = client.post("/search", json={"vector": QUESTION})
        refused(answer, 422, says="this server cannot encode a vector: it has no model")
        answer = client.post("/search/vectors", json={"vectors": [QUESTION]})
        refused(answer, 422, says="has no model, which vectors need; name it")


def test_items_of_vectors_are_described_and_shown(client):
    item = client.get("/items/d07").json()
    assert (item["id"], item["text"], item["image"]) == ("d07", "tale 7", "")
    assert list(item["codes"]) == ["vector"]
    info = client.get("/info").json()
    assert info["codes"] == {"vector": N}
    assert info["asks"] == []  # neither a text nor an image
    assert info["words_alone"]
    limits = {"numbers": MOST["numbers"], "vectors": MOST["vectors"]}
    assert {name: info["limits"][name] for name in limits} == limits
    assert client.get("/items").json()["total"] == N
    assert client.get("/").status_code == 200
    image = io.BytesIO()
    Image.new("RGB", (8, 8)).save(image, "PNG")
    answer = client.post("/search/image", files={"image": ("a.png", image.getvalue())})
    refused(answer, 422, says="this server cannot encode a new image: its model encodes vectors")
