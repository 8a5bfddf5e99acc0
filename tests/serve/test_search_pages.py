"""Pages of answers over HTTP, what was understood, and more like this without this."""

import pytest

from serve.served import ODD_ID


def found(client, **request):
    answer = client.post("/search", json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("query", [{"text": "a red picture"}, {"id": "item003"}, {"text": "red", "id": "item004"}])
def test_pages_go_on_where_the_last_one_ended(client, query):
    whole = found(client, **query, k=32)["results"]
    pages = [found(client, **query, k=8, offset=offset) for offset in range(0, 32, 8)]
    assert [result for page in pages for result in page["results"]] == whole
    assert [page["offset"] for page in pages] == [0, 8, 16, 24]
    assert found(client, **query, offset=900)["results"] == []


def test_a_picture_and_words_are_paged_together(client, folder):
    files = {"image": (folder / "images" / "0.png").read_bytes()}
    pages = [
        client.post("/search/image", data={"text": "red -blue", "k": 10, "offset": offset}, files=files).json()
        for offset in (0, 10)
    ]
    names = [result["id"] for page in pages for result in page["results"]]
    assert len(set(names)) == 20
    assert [(part["kind"], part["value"]) for part in pages[0]["understood"]] == [
        ("image", ""),
        ("words", "red"),
        ("without", "blue"),
    ]


def test_an_item_that_asks_can_be_left_out_with_what_is_like_it(client):
    with_it = [result["id"] for result in found(client, id="item003", k=30)["results"]]
    without = found(client, id="item003", k=29, exclude_self=True)
    assert [result["id"] for result in without["results"]] == [name for name in with_it if name != "item003"]
    assert without["duplicates"] is None
    folded = found(client, id="item003", k=29, exclude_self=True, collapse=12)
    alike = next(r for r in found(client, id="item003", k=30, collapse=12)["results"] if r["id"] == "item003")
    assert sorted(folded["duplicates"]) == sorted(alike["duplicates"])


def test_all_that_was_asked_is_told_part_by_part(client):
    asked = {
        "text": 'a beach "two dogs"^2 -people',
        "id": "item001",
        "minus": ["night"],
        "minus_ids": [ODD_ID],
        "label": ["red", "blue"],
        "folder": "2019",
        "where": "year > 3",
    }
    assert [(part["kind"], part["value"], part["weight"]) for part in found(client, **asked)["understood"]] == [
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


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        ({"text": "x", "k": 10, "offset": 991}, "offset"),
        ({"text": "x", "offset": -1}, "offset"),
        ({"text": "x", "exclude_self": True}, "exclude_self"),
        ({"text": "x", "month": "July"}, "month"),
        ({"text": "x", "month": "2019-07"}, "no item of this store has a date"),
    ],
)
def test_pages_that_cannot_be_are_refused_in_one_line(client, request_, says):
    answer = client.post("/search", json=request_)
    assert (answer.status_code, list(answer.json())) == (422, ["error"])
    assert says in answer.json()["error"]
