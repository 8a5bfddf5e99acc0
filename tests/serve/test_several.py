"""Several stores on one server, and a store that takes the place of another."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from fastapi import Response
from fastapi.testclient import TestClient
from hypothesis import given, strategies as st

from channelhash.search import open_store
from channelhash.search.sqlite.folder import StoreFolder
from channelhash.serve.app import open_app
from channelhash.serve.schemas import SearchRequest
from channelhash.serve.service import Limits, services
from channelhash.serve.several import _merge
from serve.served import WRITER, model_and_token, refused, small_model, small_store
from small_runs import assert_refused

CODES = np.random.default_rng(0).integers(0, 256, (40, 1), np.uint8)


def make(place: Path, rows: range, model: str = "m") -> Path:
    """A store with an item of each of some rows of `CODES`."""
    with open_store(place, 8, model) as store:
        store.add([str(row) for row in rows], CODES[rows])
    return place


def serve(places: dict[str, Path], model: Path | None = None, token: Path | None = None):
    addresses = {name: str(place) for name, place in places.items()}
    return TestClient(open_app(addresses, model, Limits(), token, None))


def find(client: TestClient, **question) -> list[dict]:
    answer = client.post("/search", json=question)
    assert answer.status_code == 200, answer.text
    return answer.json()["results"]


def test_stores_of_one_encoder_answer_as_one_and_others_in_turn(tmp_path):
    parts = {name: make(tmp_path / name, range(i, 40, 2)) for i, name in enumerate(("a", "b c"))}
    with serve(parts) as several, serve({"": make(tmp_path / "all", range(40))}) as one:
        found = find(several, code="5a", k=5) + find(several, code="5a", k=20, offset=5)
        expected = [each["distance"] for each in find(one, code="5a", k=25)]
        assert [each["distance"] for each in found] == expected
        assert {(each["store"], int(each["id"]) % 2) for each in found} == {("a", 0), ("b c", 1)}
        assert several.get("/ready").json()["items"] == 40
        assert several.post("/stores/a/search", json={"id": "0"}).json()["results"][0]["id"] == "0"
        assert 'route="/search",status="200",store="a"} 1.0' in several.get("/metrics").text
        refused(several.post("/search", json={"id": "0"}), 422, says="only at stores/NAME/search")
        refused(several.put("/stores/a/search"), 405, says="only POST")
    parts["other"] = make(tmp_path / "other", range(10), "other")
    parts["long"] = tmp_path / "long"
    with open_store(parts["long"], 16) as store:
        store.add(["x"], np.zeros((1, 2), np.uint8))
    with serve(parts) as client:
        answer = client.post("/search", json={"code": "5a", "k": 6}).json()
        assert [each["store"] for each in answer["results"]] == ["a", "b c", "other"] * 2
        assert list(answer["problems"]) == ["long"]
        refused(client.post("/search", json={"text": "a dog"}), 422, says="no model")


class Codes(NamedTuple):
    model: str
    n_bits: int
    projected: bool


class Named(NamedTuple):
    name: str
    store: Codes


@given(fits=st.lists(st.lists(st.floats(0, 1), max_size=6), min_size=2, max_size=3))
def test_photographs_of_one_encoder_come_by_how_likely_they_fit(fits):
    store = Codes("m", 8, True)
    answered = {}
    for number, each in enumerate(fits):
        found = [{"fit": fit, "image": ""} for fit in sorted(each, reverse=True)]
        service = Named(str(number), store)
        answered[service] = Response(json.dumps({"results": found}))
    question = SearchRequest(text="a dog", k=4, offset=2)
    answer = json.loads(bytes(_merge(question, 0.0, answered, {}).body))
    assert answer["merged_by"] == "fit"
    expected = sorted(chain.from_iterable(fits), reverse=True)[2:6]
    assert [each["fit"] for each in answer["results"]] == expected


def test_stores_share_a_model_and_a_token_and_words_find_images_of_each(tmp_path, capsys):
    model = small_model(tmp_path)
    places = {name: tmp_path / name / "store" for name in "ab"}
    for place in places.values():
        place.parent.mkdir()
        small_store(place.parent, model).close()
    *_, token = model_and_token(tmp_path, model)
    assert_refused(capsys, "serve", *places.values(), says="name it: OTHER=")
    with serve(places, tmp_path / "model", token) as client:
        assert len({id(each.encoding.result().model) for each in services(client.app)}) == 1
        for each in find(client, text="a red picture", by="image"):
            assert client.get(f"/{each['image']}?size=16").status_code == 200
        refused(client.delete("/stores/b/items/item001"), 401)
        assert client.delete("/stores/b/items/item001", headers=WRITER).status_code == 200
        assert [each["items"] for each in client.get("/stores").json()] == [31, 30]


@pytest.mark.parametrize("writable", [True, False])
def test_a_store_is_exchanged_while_it_is_asked_and_no_answer_is_lost(
    tmp_path, monkeypatch, caplog, writable
):
    monkeypatch.setattr("channelhash.serve.app._LOOK", 0.05)
    place = make(tmp_path / "store", range(10))
    newer = [make(tmp_path / f"{number}", range(number)) for number in (20, 30)]
    foreign = make(tmp_path / "foreign", range(5), "other")
    broken = make(tmp_path / "broken", range(5))
    with open(broken / "items.sqlite", "ab") as database:
        database.write(b"more")
    monkeypatch.setattr(StoreFolder, "writable", writable)
    ended = threading.Event()

    def ask() -> set[int]:
        numbers = set()
        while not ended.is_set():
            numbers.add(len(find(client, code="5a", k=100)))
        return numbers

    def exchange(new: Path, says: str) -> None:
        """Move a store into the place of another, and wait for a line in the log."""
        caplog.clear()
        place.rename(tmp_path / f"before {new.name}")
        time.sleep(0.2)
        new.rename(place)
        while says not in caplog.text:
            time.sleep(0.05)

    with serve({"": place}) as client, ThreadPoolExecutor(3) as pool:
        asking = [pool.submit(ask) for _ in range(3)]
        try:
            for new in newer:
                exchange(new, "answers from the store that is there now")
            exchange(foreign, "another model, which cannot be compared; choose another store; the")
            exchange(broken, "the store before it goes on answering")
            assert len(find(client, code="5a", k=100)) == 30
        finally:
            ended.set()
        assert set.union(*(each.result() for each in asking)) == {10, 20, 30}
