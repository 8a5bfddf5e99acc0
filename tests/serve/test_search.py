"""Searching over HTTP gives what searching in the process gives; what cannot be searched with is
refused.
"""

import io
import json
import shutil
from contextlib import closing

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from channelhash.codes import binarize, pack
from channelhash.codes.stage import Stage
from channelhash.duplicates import find_duplicates
from channelhash.search import answer as module, open_store
from channelhash.search.hits import SearchOptions
from channelhash.search.query import search_store
from channelhash.serve.searcher import Searcher
from channelhash.serve.service import Limits
from serve import served
from serve.served import N_BITS, ODD_ID, WRITER, app_of, serving, small_model, small_store


def search(client, image: bytes = b"", **body):
    """Search with a body in JSON, or with an image and fields of a form."""
    if image:
        return client.post("/search/image", files={"image": image}, data=body)
    return client.post("/search", json=body)


def page_of(client, **body):
    answer = search(client, **body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def found(client, **body) -> list[tuple[int, str]]:
    return [(result["distance"], result["id"]) for result in page_of(client, **body)["results"]]


def names(results) -> list[str]:
    return [result["id"] for result in results]


@pytest.mark.parametrize(("body", "asked", "options"), [
    ({"text": "a dark red picture"}, {"text": "a dark red picture"}, {}),
    ({"text": "red", "modality": "image"}, {"text": "red"}, {"modality": "image"}),
    ({"text": "red", "modality": "text", "k": 7}, {"text": "red"}, {"modality": "text", "k": 7}),
    ({"text": "red", "by": "words"}, {"text": "red", "by": "words"}, {}),
    ({"text": "red", "radius": 5, "k": 99}, {"text": "red"}, {"radius": 5}),
    ({"text": "red", "radius": 5, "k": 2}, {"text": "red"}, {"radius": 5, "limit": 2}),
    ({"text": "dark", "where": "year < 2010"}, {"text": "dark"}, {"where": "year < 2010"}),
    ({"text": 'dark "red"^2', "id": "item003"}, {"text": 'dark "red"^2', "like": "item003"}, {}),
    ({"text": "red", "minus": ["dark"], "minus_ids": ["item004"]},
     {"text": "red", "minus": ["dark"], "minus_like": ["item004"]}, {}),
    ({"id": "item007", "query_modality": "text", "modality": "image"},
     {"like": "item007", "by": "text"}, {"modality": "image"}),
])  # fmt: skip
def test_a_request_is_answered_as_in_python(client, model, body, asked, options):
    hits = search_store(client.app_store, SearchOptions(**options), **asked, model=model)
    assert found(client, **body) == [(hit.distance, hit.id) for hit in hits] != []


def test_an_image_and_words_are_added_up(client, model, folder):
    path = folder / "images" / "4.png"
    hits = search_store(client.app_store, image=path, text="red -blue", minus=["dark"], model=model)
    answer = page_of(client, image=path.read_bytes(), text="red -blue", minus="dark")
    assert names(answer["results"]) == [hit.id for hit in hits]


@pytest.mark.parametrize(
    "text", ["a dark red picture", ' "red"^2 -blue ', "red \u0301", "-blue", "red -", '"red']
)
def test_plain_words_are_answered_like_all_others(client, monkeypatch, text):
    answers = []
    for is_quick in (True, False):
        monkeypatch.setattr(Searcher, "_is_quick", lambda *_, is_quick=is_quick: is_quick)
        answers.append(search(client, text=text, k=7))
    quick, other = answers
    assert quick.status_code == other.status_code
    assert {**quick.json(), "seconds": 0} == {**other.json(), "seconds": 0}


def test_an_uploaded_picture_finds_itself_first_by_the_code_that_its_file_has(
    client, model, folder
):
    path = folder / "images" / "4.png"
    hits = search_store(client.app_store, SearchOptions(k=5), image=path, model=model)
    nearest = found(client, image=path.read_bytes(), k="5")
    assert nearest == [(hit.distance, hit.id) for hit in hits]
    assert nearest[0][0] == 0


def test_a_code_asks_and_answers_carry_codes_texts_labels_and_addresses_of_pictures(client):
    (item,) = client.app_store.get(["item003"])
    code = item.codes["image"].tobytes().hex()
    answer = page_of(client, code=code, k=30)
    result = next(result for result in answer["results"] if result["id"] == "item003")
    assert 0 < result["match"] <= 1
    assert result == {
        "id": "item003",
        "distance": 0,
        "match": result["match"],
        "fit": None,
        "similarity": None,
        "duplicates": [],
        "labels": ["red"],
        "date": "",
        "code": code,
        "text": item.metadata["text"],
        "metadata": {"year": 2003},
        "image": "images/item003",
        "modalities": ["image", "text"],
        "width": 52,
        "height": 40,
        "quote": "",
    }
    assert answer["n_bits"] == N_BITS
    assert answer["close"] is None  # 30 items are too few to say
    odd = page_of(client, id=ODD_ID, modality="image", k=3)  # it has no code of an image
    assert odd["query_modality"] == "text"
    assert len(odd["results"]) == 3


def picture(format: str = "PNG", size=(40, 30), **options) -> bytes:
    out = io.BytesIO()
    Image.effect_noise(size, 80).convert("RGB").save(out, format=format, **options)
    return out.getvalue()


BAD_BODIES = {
    "an empty query": ({"text": "  "}, 422, "text: is empty"),
    "two queries": ({"id": "item001", "code": "0000"}, 422, "id and code are several queries"),
    "no query": ({}, 422, "give text, id, code or vector"),
    "nothing that is wanted": ({"text": "-people"}, 422, "only what is not wanted"),
    "an open quote": ({"text": 'a "dog'}, 422, "a quote is opened"),
    "too many parts": ({"text": "a " + "-b " * 40}, 422, "at most 32"),
    "minus of nothing": ({"text": "a", "minus": [" "]}, 422, "minus.0: is empty"),
    "minus an unknown id": ({"text": "a", "minus_ids": ["nobody"]}, 404, "no item 'nobody'"),
    "by words of an item": ({"id": "item001", "by": "words"}, 422, "has no words"),
    "a radius above the code": ({"text": "a", "radius": 13}, 422, "radius: is more than 12"),
    "more bits folded than there are": (
        {"id": "item003", "collapse": N_BITS + 1},
        422,
        "collapse",
    ),
    "an unknown id": ({"id": "nobody"}, 404, "no item 'nobody'"),
    "a code that is too long": ({"code": "00" * 9}, 422, "12 bits are 4"),
    "a code with bits past the last": ({"code": "ffff"}, 422, "12 bits"),
    "a malformed filter": ({"text": "a", "where": "label = "}, 422, "where"),
    "a filter that would write": ({"text": "a", "where": "1; DROP TABLE items"}, 422, "where"),
    "a filter on an unknown key": ({"text": "a", "where": "yaer > 3"}, 422, "year"),
    "a deep filter": ({"text": "a", "where": "NOT " * 400 + "year = 1"}, 422, "where"),
    "the code of a question that has none": (
        {"text": "a", "query_modality": "text"},
        422,
        "query_modality",
    ),
    "a code that the item has not": (
        {"id": ODD_ID, "query_modality": "image"},
        422,
        "no image code",
    ),
    "a page beyond the last": ({"text": "x", "k": 10, "offset": 991}, 422, "offset"),
    "leaving out what does not ask": ({"text": "x", "exclude_self": True}, 422, "exclude_self"),
    "a month where nothing has a date": (
        {"text": "x", "month": "2019-07"},
        422,
        "no item of this store has a date",
    ),
}


def refused(client, answer, status: int, says: str) -> None:
    """A refusal in one line of JSON, after which the server answers as before."""
    served.refused(answer, status, says=says)
    assert search(client, text="a red picture", k=1).status_code == 200


@pytest.mark.parametrize("case", BAD_BODIES)
def test_what_cannot_be_searched_with_is_refused_in_one_line(client, case):
    body, status, says = BAD_BODIES[case]
    refused(client, search(client, **body), status, says)


BMP, SIDE = picture("BMP", (1, 1)), (60_000).to_bytes(4, "little")
BAD_PICTURES = {
    "a decompression bomb": (
        BMP[:18] + SIDE + SIDE + BMP[26:],
        413,
        "pixels",
    ),  # a header and no more is needed
    "too many pixels": (picture("JPEG", (700, 600)), 413, "700 x 600 pixels"),
    "too long a side": (picture(size=(1200, 10)), 413, "a side may have 1000"),
    "a truncated JPEG": (picture("JPEG", (300, 200))[:-3000], 422, "damaged"),
    "a truncated PNG": (picture("PNG", (300, 200))[:2000], 422, "damaged"),
    "a truncated GIF": (picture("GIF", (300, 200))[:2000], 422, "damaged"),
    "no picture": (b"GIF? No, a text.", 422, "not a picture"),
    "a program in a picture's clothes": (
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
        422,
        "not a picture",
    ),
    "nothing": (b"", 422, "empty"),
}


@pytest.fixture(scope="module")
def cautious(tmp_path_factory):
    limits = Limits(pixels=400_000, side=1000, upload_bytes=1_000_000)
    with serving(tmp_path_factory.mktemp("cautious"), limits=limits) as client:
        yield client


@pytest.mark.parametrize("case", BAD_PICTURES)
def test_an_upload_that_is_no_sound_picture_is_refused(cautious, case):
    content, status, says = BAD_PICTURES[case]
    answer = cautious.post("/search/image", files={"image": content})
    refused(cautious, answer, status, says)
    written = cautious.post(
        "/items/image", files={"image": content}, data={"id": "x"}, headers=WRITER
    )
    refused(cautious, written, status, says)
    assert cautious.get("/items/x").status_code == 404


@pytest.mark.filterwarnings("ignore::UserWarning")  # of Pillow's, on damaged TIFF files
@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP"])
def test_damage_anywhere_in_a_picture_never_fails_the_server(cautious, format):
    random = np.random.default_rng(0)
    whole = np.frombuffer(picture(format, (64, 48)), np.uint8)
    for _ in range(25):
        content = whole.copy()
        content[random.integers(0, len(content), 12)] = random.integers(0, 256, 12)
        answer = search(cautious, image=content.tobytes())
        assert answer.status_code in (200, 413, 422), answer.text


def test_a_body_above_the_limit_is_refused_whether_or_not_it_says_so(cautious):
    small = "larger than 0.064 MB"
    refused(cautious, search(cautious, text="a" * 260_000), 413, small)
    refused(cautious, search(cautious, image=bytes(1_100_000)), 413, "larger than 1 MB")
    headers = {"Content-Type": "application/json"}
    chunks = (bytes(100_000) for _ in range(12))
    refused(cautious, cautious.post("/search", content=chunks, headers=headers), 413, small)


def test_a_server_without_a_model_searches_by_id_and_says_why_words_do_not(tmp_path, model):
    with TestClient(app_of(small_store(tmp_path, model))) as client:
        assert client.get("/info").json()["asks"] == []
        assert search(client, id="item001").status_code == 200
        served.refused(search(client, text="a"), 422, says="--model")


def test_without_a_model_of_texts_words_answer_and_a_note_says_why(tmp_path, client):
    model = small_model(tmp_path, of_texts=False)
    with closing(small_store(tmp_path, model)) as store, TestClient(app_of(store, model)) as alone:
        assert alone.get("/info").json()["words_alone"]
        assert not client.get("/info").json()["words_alone"]
        expected = store.search_words("red picture", without=["dark"]).ids
        for body in ({}, {"by": "words"}):
            answer = page_of(alone, text="red picture -dark", **body)
            assert names(answer["results"]) == expected
            assert answer["results"][0]["distance"] is None
            assert answer["query_code"] == ""
            assert answer["close"] is None
            assert ("codes are of images alone" in answer["note"]) == (not body)
        assert page_of(alone, text="unheard")["close"] is False
        near = page_of(alone, text="red", id="item003")
        assert near["query_modality"] == ""
        assert near["results"][0]["distance"] is not None
        served.refused(search(alone, text="red", radius=3), 422, says="images alone")
    assert page_of(client, text="red")["note"] == ""


def test_an_item_asks_with_its_projection_where_the_store_keeps_them(tmp_path, model):
    ids = [f"{n:02}" for n in range(30)]
    outputs = np.random.default_rng(0).standard_normal((30, N_BITS)).astype(np.float32)
    outputs[:15] = np.abs(outputs[:15])  # these have one code
    options = (N_BITS, model.fingerprint())
    with closing(open_store(tmp_path / "s", *options, stage=Stage(N_BITS))) as store:
        store.add(ids, pack(binarize(outputs)), "image", projections=outputs)
        with TestClient(app_of(store, model)) as client:
            for minus in ([], ["20"]):
                hits = search_store(store, like="03", minus_like=minus)
                expected = [(hit.distance, hit.id) for hit in hits]
                assert found(client, id="03", minus_ids=minus) == expected
    assert expected != sorted(expected)


def test_an_empty_store_answers_with_nothing(tmp_path, model):
    with TestClient(app_of(open_store(tmp_path / "store", model.n_bits), model)) as client:
        assert page_of(client, text="a red picture")["results"] == []
        assert client.get("/labels").json() == {"labels": {}}
        assert client.get("/info").json()["items"] == 0
        assert search(client, id="x").status_code == 404
        assert search(client, code="00").status_code == 422


def test_all_that_was_asked_is_told_part_by_part(client):
    narrowed = {"label": ["red", "blue"], "folder": "2019", "where": "year > 3"}
    unwanted = {"minus": ["night"], "minus_ids": [ODD_ID]}
    text = 'a beach "two dogs"^2 -people'
    whole = page_of(client, text=text, id="item001", **unwanted, **narrowed)["understood"]
    assert [(part["kind"], part["value"], part["weight"]) for part in whole] == [
        ("item", "item001", 1),
        ("words", "a beach", 1),
        ("words", "two dogs", 2),
        ("without", "people", 1),
        ("without", "night", 1),
        ("without_item", ODD_ID, 1),
        ("label", "red", 1),
        ("label", "blue", 1),
        ("folder", "2019", 1),
        ("where", "year > 3", 1),
    ]
    of_image = page_of(client, image=picture(), text="red -blue")["understood"]
    kinds = [(part["kind"], part["value"]) for part in of_image]
    assert kinds == [("image", ""), ("words", "red"), ("without", "blue")]


def test_groups_of_duplicates_are_those_of_the_store(client):
    """By pictures there are none, which are noise of a few colours, until two of them become
    one.
    """

    def duplicates(**params):
        return client.get("/duplicates", params=params)

    store = client.app_store
    groups = find_duplicates(store, 2, compare_images=False)
    near = duplicates(radius=2, k=1, pictures=False).json()
    assert near["found"] == len(groups)
    assert near["sizes"] == [len(groups[0].ids)]
    assert near["groups"] == [groups[0].ids]
    assert near["distances"] == [groups[0].distances]
    everything = duplicates(where="year < 2010", modality="text").json()
    expected = find_duplicates(store, modality="text", where="year < 2010")
    assert everything["groups"] == [group.ids for group in expected]
    assert everything["radius"] is None
    assert duplicates().json()["groups"] == []
    ids = groups[0].ids[:2]
    shutil.copyfile(*(item.metadata["image"] for item in store.get(ids)))
    assert duplicates().json()["groups"] == [ids]
    served.refused(duplicates(k=100_000), 422, says="k")
    served.refused(duplicates(where="colour = 1"), 422, says="colour")


def test_copies_are_decided_about_and_moved_and_moved_back(tmp_path):
    store = served.store_of_copies(tmp_path)
    with TestClient(app_of(store, None, token=served.TOKEN)) as client:

        def post(what, **body):
            return client.post(f"/duplicates/{what}", json=body, headers=WRITER)

        found = client.get("/duplicates").json()
        assert found["groups"] == [["a.png", "small.png"]]
        assert found["keepers"] == ["a.png"]
        assert found["reasons"] == ["most pixels"]
        assert found["unsure"] == [[]]
        assert found["bytes"] == (tmp_path / "photos" / "small.png").stat().st_size
        sizes = [(photo["width"], photo["height"]) for photo in found["photos"][0]]
        assert sizes == [(180, 150), (90, 75)]
        assert str(tmp_path) not in json.dumps(found)
        asked = {"keeper": "a.png", "ids": ["small.png", "b.png"]}
        dry = post("move", **asked).json()
        assert dry["ids"] == ["small.png"]
        assert dry["folder"] == "photos duplicates"
        (problem,) = dry["problems"]
        assert problem == "b.png: stays, is no copy of a.png"
        assert (tmp_path / "photos" / "small.png").exists()
        assert post("move", **asked, dry_run=False).json() == dry
        assert (tmp_path / "photos duplicates" / "small.png").exists()
        assert post("undo").json()["ids"] == ["small.png"]
        assert client.get("/duplicates").json()["groups"] == found["groups"]
        assert post("decisions", kind="keep", ids=["a.png", "small.png"]).status_code == 201
        assert client.get("/duplicates").json()["groups"] == []
        assert post("undo").json()["kind"] == "keep"
        served.refused(post("undo"), 404, says="no decision")
        served.refused(client.post("/duplicates/undo"), 401, says="writing needs")


# Pages of answers against the whole

PAGED = {
    "words": {"text": "a dark red picture"},
    "words and what is not wanted": {"text": "red", "minus": ["dark"]},
    "words alone": {"text": "a dark red picture", "by": "words"},
    "texts": {"text": "blue", "by": "text"},
    "words within a radius": {"text": "red", "radius": 5, "by": "all"},
    "folded": {"text": "red picture", "collapse": 2},
    "an item": {"id": "item003"},
    "an item, itself left out": {"id": "item003", "exclude_self": True},
    "an item and its copies left out": {"id": "item003", "exclude_self": True, "collapse": 2},
    "an item and words": {"id": "item003", "text": "dark"},
    "a code": {"code": "0000", "radius": 7},
    "narrowed": {"text": "red", "where": "year < 2020", "label": ["red", "blue"]},
    "the newest": {"text": "red", "order": "newest"},
    "the oldest": {"text": "red", "order": "oldest", "collapse": 0},
    "what fits": {"text": "red", "fitting": True},
    "dates alone": {"text": "in 2019"},
    "an image and words": {"text": "red -blue", "image": picture()},
}


@pytest.mark.parametrize("name", PAGED)
@pytest.mark.parametrize("depth", [100, 6])
def test_pages_put_together_are_the_whole_answer(dated, name, depth, monkeypatch):
    monkeypatch.setattr(module, "DEPTH", depth)
    monkeypatch.setattr(module, "_SECOND", max(16, depth))
    whole = page_of(dated, **PAGED[name], k=200)
    for k in (1, 4, 7):
        pages = []
        for offset in range(0, len(whole["results"]) + k, k) if k > 1 else (0, 1, 2):
            page = page_of(dated, **PAGED[name], k=k, offset=offset)
            assert (page["close"], page["note"]) == (whole["close"], whole["note"])
            assert page["did_you_mean"] == whole["did_you_mean"]
            assert page["offset"] == offset
            pages += page["results"]
        assert pages == whole["results"][: len(pages)]
        assert k == 1 or len(pages) == len(whole["results"])


@pytest.fixture(scope="module")
def dated(tmp_path_factory, model):
    """A client of the small store, in which every third item has a date."""
    folder = tmp_path_factory.mktemp("dated")
    with closing(small_store(folder, model)) as store:
        ids = [f"item{row:03}" for row in range(0, 30, 3)]
        store.update(ids, [{"date": f"2019-{12 - row:02}-14"} for row in range(10)])
        with TestClient(app_of(store, model)) as client:
            yield client


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_items_without_a_date_come_last(dated, order):
    items = page_of(dated, text="red", order=order, k=200)["results"]
    dates = [item["date"] for item in items]
    assert dates[10:] == [""] * 21
    assert dates[:10] == sorted(dates[:10], reverse=order == "newest")
