"""Looking through a store over HTTP: every item once over all pages, by label, folder and month."""

import io
import math
from urllib.parse import parse_qs

import pytest
from PIL import ExifTags, Image

from serve.served import ODD_ID, WRITER, refused, serving


@pytest.fixture(scope="module", autouse=True)
def dated(client):
    """Three items more, with dates and labels."""
    items = [{"id": f"2019/it's {n}/{n}", "text": "x"} for n in range(1, 4)]
    for n, item in enumerate(items, 1):
        item["metadata"] = {"date": f"2019-0{n}-01 00:00:0{n}", "labels": ["it's"]}
    assert client.post("/items", json={"items": items}, headers=WRITER).status_code == 201


def ids(client, address: str) -> list[str]:
    answer = client.get(address)
    assert answer.status_code == 200, answer.text
    return [item["id"] for item in answer.json()["items"]]


@pytest.mark.parametrize("order", ["newest", "oldest", "name", "random&seed=7"])
def test_every_item_comes_once_over_all_pages(client, order):
    total = client.get("/health").json()["items"]
    pages = [
        ids(client, f"/items?order={order}&offset={offset}&limit=7")
        for offset in range(0, total + 7, 7)
    ]
    found = [name for page in pages for name in page]
    assert (pages[-1], len(found), len(set(found))) == ([], total, total)
    assert found == ids(client, f"/items?order={order}&limit=50")


def test_the_newest_come_first_and_what_has_no_date_last(client):
    dated = [f"2019/it's {n}/{n}" for n in (3, 2, 1)]
    assert (ids(client, "/items?limit=3"), ids(client, "/items?order=oldest&limit=3")) == (
        dated,
        dated[::-1],
    )
    assert client.get("/items?limit=4").json()["items"][3]["date"] == ""


@pytest.mark.parametrize(
    ("query", "where"),
    [
        ("label=red", "label = 'red'"),
        ("label=red&label=it's", "label = 'red' OR label = 'it''s'"),
        ("folder=2019", "id LIKE '2019/%'"),
        ("folder=2019/it's 2", "id = '2019/it''s 2/2'"),
        ("folder=201", "id = ''"),
        ("month=2019-02", "date LIKE '2019-02%'"),
        ("month=2019", "date LIKE '2019%'"),
        (
            "label=red&where=year < 2010 OR year > 2020",
            "label = 'red' AND (year < 2010 OR year > 2020)",
        ),
    ],
)
def test_a_selection_is_what_its_filter_finds_for_items_and_for_searches(
    client, folder, query, where
):
    expected = client.app_store.ids(where)
    assert sorted(ids(client, f"/items?limit=50&{query}")) == expected
    assert client.get(f"/items?limit=1&{query}").json()["total"] == len(expected)
    options = {
        key: values if key == "label" else values[0] for key, values in parse_qs(query).items()
    }
    found = client.post("/search", json={"text": "red", "by": "text", "k": 50, **options})
    assert sorted(result["id"] for result in found.json()["results"]) == expected
    image = {"image": (folder / "images" / "0.png").read_bytes()}
    found = client.post("/search/image", data={"by": "text", "k": 50, **options}, files=image)
    assert sorted(result["id"] for result in found.json()["results"]) == expected
    kinds = [part["kind"] for part in found.json()["understood"]]
    assert kinds == [
        "image",
        *sorted(key for key, values in parse_qs(query).items() for _ in values),
    ]


def test_facets_count_labels_folders_and_months(client):
    facets = client.get("/facets").json()
    assert {facet["name"]: facet["count"] for facet in facets["labels"]} == client.get(
        "/labels"
    ).json()["labels"]
    folders = {facet["name"]: facet["count"] for facet in facets["folders"]}
    assert folders == {
        "2019": 3,
        "2019/it's 1": 1,
        "2019/it's 2": 1,
        "2019/it's 3": 1,
        "..": 1,
        "../a b": 1,
    }
    assert facets["months"] == [{"name": f"2019-0{n}", "count": 1} for n in (3, 2, 1)]


@pytest.mark.parametrize(("query", "says"), [
    ("limit=1001", "less than or equal to 1000"),
    ("month=July", "month"),
    ("where=nothing = 1", "nothing"),
    ("label=red&where=year = 1) OR (year = 2", "character 9"),
    (f"folder={'x' * 2001}", "folder"),
    ("&".join(f"label={n}" for n in range(32)), "label"),
])  # fmt: skip
def test_what_cannot_be_selected_is_refused_in_one_line(client, query, says):
    refused(client.get(f"/items?{query}"), 422, says=says)


def test_what_is_written_and_deleted_is_seen_at_once(client):
    before = client.get("/items").json()["total"]
    new = {"items": [{"id": "new", "text": "a", "metadata": {"date": "2030-01-01"}}]}
    client.post("/items", json=new, headers=WRITER)
    assert ids(client, "/items?limit=1") == ["new"]
    client.delete("/items/new", headers=WRITER)
    assert client.get("/items").json()["total"] == before


def test_an_item_that_has_gone_since_it_was_counted_is_left_out(tmp_path):
    with serving(tmp_path) as client:
        browser = client.app.state.service.browser
        total = client.get("/items").json()["total"]
        # as if counting took long, so that it is not done again at every write
        browser._due = math.inf
        client.app_store.delete([ODD_ID])
        assert client.get("/items?limit=1&offset=5").json()["total"] == total
        assert ODD_ID not in ids(client, "/items?limit=60")


def test_pictures_have_their_upright_size_and_their_date(tmp_path):
    with serving(tmp_path) as client:
        exif = Image.Exif()
        exif[ExifTags.Base.Orientation] = 6
        Image.new("RGB", (80, 40)).save(tmp_path / "images" / "0.png", format="JPEG", exif=exif)
        (tmp_path / "images" / "1.png").write_bytes(b"no picture")
        items = {item["id"]: item for item in client.get("/items?limit=60").json()["items"]}
        assert [items["item000"][key] for key in ("width", "height", "date")] == [40, 80, ""]
        assert items["item001"]["width"] is items[ODD_ID]["width"] is None
        assert items["item000"] == {
            k: v for k, v in client.get("/items/item000").json().items() if k != "codes"
        }
        found = client.post("/search", json={"id": "item000", "k": 1}).json()["results"][0]
        assert [found[key] for key in ("id", "width", "height")] == ["item000", 40, 80]
        assert Image.open(io.BytesIO(client.get("/images/item000").content)).size == (40, 80)
