"""What else is done with a store of vectors: each command works, or says in one line why not."""

import json

import numpy as np
import pytest
from tests.search.servers import postgres_address

import channelhash as ch
from channelhash.search import open_store
from channelhash.search.query import load_query_encoder, search_store, search_vectors
from refusals import check_refusal
from small_runs import assert_refused, run_json, run_text

N = 40
VALUES = np.random.default_rng(0).normal(size=(N, 16)).astype(np.float32)
QUESTIONS = VALUES[:3] + np.float32(0.1)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Vectors with years, of which the last is a copy of the first."""
    folder = tmp_path_factory.mktemp("vectors")
    values = np.vstack([VALUES, VALUES[:1]])
    rows = [{"id": f"d{row:02}", "v": v, "year": row} for row, v in enumerate(values.tolist())]
    (folder / "v.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    ch.index(folder / "v.jsonl", folder / "s", n_bits=64).store.close()
    return folder / "s"


def answers(store, model):
    found = search_vectors(store, QUESTIONS, model=model)
    return [[(hit.id, hit.distance, hit.similarity) for hit in hits] for hits in found]


@pytest.mark.parametrize("kind", ["folder", "postgres"])
def test_another_store_gives_the_same_answers(kind, place, tmp_path, capsys):
    target = str(tmp_path / "t") if kind == "folder" else postgres_address(tmp_path)
    done = run_json(capsys, "index", "push", place, target)
    assert (done["items"], done["target_items"]) == (N + 1, N + 1)
    assert not done["without_projections"]
    with open_store(place) as store, open_store(target) as other:
        model = load_query_encoder(store)
        assert other.modalities == ("vector",)
        assert answers(other, model) == answers(store, model)
    np.save(tmp_path / "q.npy", QUESTIONS[:1])
    words = ("search", target, "--vector", tmp_path / "q.npy")
    says = "to encode a question, add --model with the run that made these codes"
    assert_refused(capsys, *words, says=says)
    found = run_json(capsys, *words, "--model", place)["results"]
    assert [hit["id"] for hit in found] == [name for name, _, _ in answers_of(place)[0]]


def answers_of(place):
    with open_store(place) as store:
        return answers(store, load_query_encoder(store))


def test_equal_vectors_are_near_duplicates(place, capsys):
    found = run_json(capsys, "duplicates", place, "--radius", 0)
    assert found["groups"] == [["d00", "d40"]]


def test_a_store_of_vectors_is_described(place, capsys):
    info = run_json(capsys, "index", "info", place)
    assert (info["items"], info["codes"], info["encoder"]) == (N + 1, {"vector": N + 1}, "features")
    assert info["distinct_codes"] == {"vector": N}
    assert info["bytes_an_item"]["code"] == 8
    assert run_text(capsys, "index", "check", place).endswith(" is whole\n")


def test_two_items_are_explained_by_their_bits(place, capsys):
    found = run_json(capsys, "explain", place, "--like", "d00", "--like", "d40")
    assert found["distance"] == 0
    assert [side["modality"] for side in found["sides"]] == ["vector", "vector"]
    assert "no map of d00: its vector is not kept" in found["remarks"]
    words = ("explain", place, "--like", "d00", "--text", "a tale")
    assert_refused(capsys, *words, says="this model encodes vector")


def test_an_item_asks_with_its_own_vector(place, capsys):
    hits = run_json(capsys, "search", place, "--like", "d00", "-k", 2)["results"]
    assert [hit["id"] for hit in hits] == ["d00", "d40"]
    assert hits[0]["similarity"] == hits[1]["similarity"]
    assert hits[0]["similarity"] == pytest.approx(1, abs=0.01)


def test_answers_are_drawn_without_images(place, tmp_path, capsys):
    np.save(tmp_path / "q.npy", QUESTIONS[:1])
    words = ("search", place, "--vector", tmp_path / "q.npy", "--sheet", tmp_path / "sheet.png")
    assert f"Pictures in {tmp_path / 'sheet.png'}" in run_text(capsys, *words)
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_a_store_of_codes_alone_takes_no_vectors(tmp_path):
    codes = np.zeros((3, 8), np.uint8)
    with open_store(tmp_path / "codes", n_bits=64) as store:
        store.add(["a", "b", "c"], codes, "vector")
        says = "the store holds no model"
        check_refusal(says, search_store, store, vector=np.ones(16))
        check_refusal(says, search_vectors, store, np.ones((1, 16)))
