"""What is promised of all stores, of each of them; arguments that none takes; what an address
stands for; and the order of a store's items, against plain sorting.
"""

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st
from tests.search import contract
from tests.search.contract import TREES, items_of, truth, written
from tests.search.servers import postgres_address

import channelhash as ch
from channelhash.codes.stage import Stage
from channelhash.search import Address, checks
from channelhash.search.address import choose_place, find_store
from channelhash.search.browsing import DATES, Catalogue, date_filter, date_of, file_date
from channelhash.search.filters import parse_filter, passes
from channelhash.search.items import Facts
from channelhash.search.question import Question, narrow
from channelhash.search.store import Store
from refusals import check_refusal

ODD_ITEMS = items_of(150)


@pytest.fixture(params=contract.KINDS)
def kind(request) -> contract.Kind:
    return contract.KINDS[request.param]


@pytest.fixture
def store(kind, tmp_path) -> Store:
    with kind.open(tmp_path) as opened:
        yield opened


def test_any_calls_in_any_order(kind):
    contract.check_any_calls(kind)


@pytest.mark.parametrize("name", contract.PROJECTED)
def test_any_calls_in_any_order_with_projections(name):
    contract.check_any_calls(contract.PROJECTED[name])


def test_an_empty_store_finds_nothing(store):
    queries = ch.codes.pack(contract.bits_of(np.random.default_rng(0), 2))
    for found in (
        store.search(queries),
        store.search_radius(queries, 3),
        store.search(queries, where="label = 'x'"),
    ):
        assert found.ids == [[], []]
        assert [len(distances) for distances in found.distances] == [0, 0]
    assert (len(store), store.ids(), store.modalities, store.label_counts()) == (0, [], (), {})
    assert store.delete(["a"]) == 0
    assert "a" not in store
    assert store.writable
    assert (store.info()["items"], store.info()["codes"]) == (0, {})
    bits = contract.bits_of(np.random.default_rng(3), 4)
    store.add(["c", "d"], ch.codes.pack(bits[2:]), "text")
    first = ch.codes.pack(bits[:1])
    assert store.search(first).ids[0] == store.search(first, modality="text").ids[0]
    check_refusal("no image codes", store.search, first, modality="image")
    store.add(["a", "b"], ch.codes.pack(bits[:2]))
    assert set(store.search(first).ids[0]) == {"a", "b"}
    info = store.info()
    assert (info["items"], info["n_bits"], info["codes"]) == (
        4,
        contract.N_BITS,
        {"image": 2, "text": 2},
    )


@pytest.fixture(scope="module")
def odd_stores(tmp_path_factory) -> Iterator[Callable[[contract.Kind], Store]]:
    """Kind -> its store of the items of `ODD_ITEMS`."""
    stores: dict[contract.Kind, Store] = {}

    def store_of(kind: contract.Kind) -> Store:
        if kind not in stores:
            stores[kind] = store = kind.open(tmp_path_factory.mktemp("odd"))
            metadata = [
                {key: value for key, value in item.items() if key != "id"} for item in ODD_ITEMS
            ]
            store.add(
                [item["id"] for item in ODD_ITEMS],
                np.zeros((len(ODD_ITEMS), 2), np.uint8),
                metadata=metadata,
            )
        return stores[kind]

    yield store_of
    for store in stores.values():
        store.close()


@settings(max_examples=50, derandomize=True, suppress_health_check=list(HealthCheck), deadline=None)
@given(tree=TREES)
@example(tree=("LIKE", "text", ("Sea%",)))
@example(tree=("NOT", ("LIKE", "label", ("sea_",))))
@example(tree=("LIKE", "id", ("[%",)))
@example(tree=("IN", "score", (2**60, 2.0**53)))
def test_a_filter_means_the_same_in_every_store(odd_stores, kind, tree):
    store, where = odd_stores(kind), written(tree)
    expected = sorted(item["id"] for item in ODD_ITEMS if truth(tree, item))
    assert store.ids(where) == expected
    if kind.ties_by_id:
        assert (
            store.search(np.zeros((1, 2), np.uint8), len(ODD_ITEMS), where=where).ids[0] == expected
        )


def draw_moment(draw: random.Random) -> tuple[str, str, str]:
    """A date, a clock and a fraction, of few that are near each other; a date alone has no
    clock.
    """
    date = draw.choice(["2019-07-13", "2019-07-14", "2019-07-15", "2020-01-01"])
    if draw.random() < 0.15:
        return date, "", ""
    clock = draw.choice(["00:00:00", "10:00:00", "10:20:00", "10:20:30", "23:59:59"])
    return date, clock, draw.choice(["", "", "", "5", "25", "000001"])


def write_moment(draw: random.Random, date: str, clock: str, fraction: str) -> str:
    """Any writing of a moment."""
    if not clock:
        return date
    if fraction or draw.random() < 0.4:
        digits = draw.choice([size for size in (3, 6, 9) if size >= len(fraction)])
        fraction = fraction.ljust(draw.choice([len(fraction) or 3, digits]), "0")
        clock = f"{clock}.{fraction}"
    else:
        while clock.endswith(":00") and draw.random() < 0.5:
            clock = clock[: -len(":00")]
    return f"{date}{draw.choice(' T')}{clock}"


def test_a_time_means_its_moment_in_every_writing(kind, tmp_path):
    draw = random.Random(0)
    moments = [draw_moment(draw) for _ in range(120)]
    values = [write_moment(draw, *moment) for moment in moments] + ["in July", 2019, True]
    moments += [("in July", "", ""), None, None]
    ids = [f"{number:03}" for number in range(len(values))]
    with kind.open(tmp_path) as store:
        codes = np.zeros((len(ids), 2), np.uint8)
        store.add(ids, codes, metadata=[{"taken": value} for value in values])
        for _ in range(60):
            test = draw.choice(["=", "!=", "<", "<=", ">", ">=", "IN", "BETWEEN"])
            of = [draw_moment(draw), draw_moment(draw)]
            tree = (test, "taken", tuple(write_moment(draw, *moment) for moment in of))
            tree = draw.choice([tree, ("NOT", tree)])
            negated = tree[0] == "NOT"
            expected = [
                name
                for name, moment in zip(ids, moments, strict=True)
                if moment and contract.TESTS[test](moment, of) != negated
            ]
            assert store.ids(written(tree)) == expected, written(tree)


@pytest.mark.parametrize("zone", ["Z", "z", "+02:00", "-0530", " +01"])
def test_a_zone_is_compared_as_it_is_written_and_orders_nothing(tmp_path, zone):
    time = f"2019-07-14T10:20:30{zone}"
    with ch.open_store(tmp_path / "store", n_bits=8) as store:
        metadata = [{"taken": text} for text in ("2019-07-14 10:20:30", time)]
        store.add(["without", "with"], np.zeros((2, 1), np.uint8), metadata=metadata)
        assert store.ids(f"taken = '{time}'") == ["with"]
        assert store.ids(f"taken NOT IN ('{time}')") == ["without"]
        for test in (f"< '{time}'", f">= '{time}'", f"BETWEEN '2019' AND '{time}'"):
            check_refusal("taken: .* has a time zone", store.ids, f"taken {test}")


def test_ids_and_texts_are_no_times(tmp_path):
    time = "2019-07-14T10:20:30Z"
    with ch.open_store(tmp_path / "store", n_bits=8) as store:
        metadata = [{"text": time, "labels": [time]}] * 2
        store.add([time, "2019-07-14 10:20:30Z"], np.zeros((2, 1), np.uint8), metadata=metadata)
        assert store.ids(f"id >= '{time}'") == [time]
        assert store.ids(f"id = '{time}' AND text <= '{time}' AND label = '{time}'") == [time]


def test_odd_values_come_back(odd_stores, kind):
    store = odd_stores(kind)
    for item in ODD_ITEMS:
        values = {key: value for key, value in item.items() if key != "id"}
        [stored] = store.get([item["id"]])
        kinds = {key: type(value) for key, value in values.items()}
        assert (stored.metadata, {key: type(value) for key, value in stored.metadata.items()}) == (
            values,
            kinds,
        )


@pytest.mark.parametrize("address_of", [lambda folder: folder / "store", postgres_address])
def test_an_address_where_no_store_is_opens_none_unless_one_is_to_be_made(tmp_path, address_of):
    address = address_of(tmp_path)
    for options in ({}, {"model": "abc"}, {"stage": Stage(8)}):
        check_refusal("no store at ", ch.open_store, address, **options)
    assert not (tmp_path / "store").exists()
    with ch.open_store(address, n_bits=8) as store:
        assert len(store) == 0
        store.add(["a"], np.zeros((1, 1), np.uint8))
    with ch.open_store(address) as store:
        assert (store.n_bits, store.ids()) == (8, ["a"])


def test_a_refused_call_changes_nothing(store):
    expected, bits = contract.Expected(), contract.bits_of(np.random.default_rng(1), 30)
    names = [f"item {row}" for row in range(30)]
    metadata = [
        {"year": 1990 + row, "labels": ["dog"] if row % 3 else ["cat", "sea"]} for row in range(30)
    ]
    store.add(names, ch.codes.pack(bits), metadata=metadata)
    expected.write(names, {"image": bits}, metadata)
    two = ch.codes.pack(contract.bits_of(np.random.default_rng(4), 2))
    for message, call in {
        "already": lambda: store.add(["new", "item 3"], two),
        "occurs twice": lambda: store.add(["new", "new"], two),
        "12 bits are": lambda: store.add(["new", "other"], np.zeros((2, 3), np.uint8)),
        "year is nan": lambda: store.add(
            ["new", "other"], two, metadata=[{}, {"year": float("nan")}]
        ),
        "'other': year: a whole number has more than 64 bits": lambda: store.upsert(
            ["new", "other"], two, metadata=[{}, {"year": -(10**5000)}]
        ),
        "not one string": lambda: store.delete("item 1"),
    }.items():
        check_refusal(message, call)
        contract.check_contents(store, expected)
    query = two[:1]
    check_refusal("k is 0", store.search, query, 0)
    check_refusal("k is 1.5", store.search, query, 1.5)
    check_refusal("radius is -1", store.search_radius, query, -1)
    check_refusal("limit is 0", store.search_radius, query, 1, limit=0)
    check_refusal("12 bits are", store.search, np.zeros((1, 3), np.uint8))
    check_refusal("no text codes", store.search, query, modality="text")
    check_refusal(
        "where: unknown key 'yeer'; did you mean 'year'", store.search, query, where="yeer = 3"
    )
    check_refusal("where: is empty", store.ids, "")
    check_refusal("no item has the id 'item 99'", store.get, ["item 1", "item 99"])
    check_refusal("no item has the id", store.get, ["\ud800"])
    known = store.get(["item 99", "item 3", "\ud800", "item 1"], missing_ok=True)
    assert [item.id for item in known] == ["item 3", "item 1"]
    assert store.get(["item 99"], missing_ok=True) == []
    assert "\ud800" not in store


@pytest.mark.parametrize(
    "where",
    ["label = '{}'", "label IN ('{}', 'x')", "label LIKE '{}%'", "label BETWEEN '{}' AND 'ü'"],
)
def test_a_label_is_found_in_either_form_of_unicode(where, store):
    composed, decomposed = "caf\u00e9", "cafe\u0301"
    store.add(
        ["a", "b"],
        contract.random_codes(2),
        metadata=[{"labels": [decomposed]}, {"labels": [composed]}],
    )
    assert store.label_counts() == {composed: 2}
    for form in (composed, decomposed):
        assert store.ids(where.format(form)) == ["a", "b"]


def test_a_label_is_whole_whatever_stands_in_it(store):
    gaps = ["\n", "\r\n", "\t", "\u00a0", "\u2028", "\u2029", "\x85", "\u00ad", "\u200b", " "]
    labels = [f"traffic{gap}light" for gap in gaps]
    names = [f"i{number}" for number in range(len(gaps))]
    metadata = [{"labels": [label, "x"]} for label in labels]
    store.add(names, contract.random_codes(len(gaps)), metadata=metadata)
    for name, label in zip(names, labels, strict=True):
        assert store.get([name])[0].metadata["labels"] == [label, "x"]
        for where in (f"label = '{label}'", f"label IN ('{label}')", f"label LIKE '%{label[3:]}'"):
            assert store.ids(where) == [name]
    assert store.label_counts() == {"x": len(gaps), **dict.fromkeys(sorted(labels), 1)}
    assert store.ids("label LIKE 'traffic%light'") == names


CODES = np.array([[7]], np.uint8)


def by_modality(codes, modality=None, n_bits=None):
    return checks.codes_by_modality(codes, modality, n=1, n_bits=n_bits)


@pytest.mark.parametrize(
    ("check", "arguments", "message"),
    [
        (checks.check_ids, ("a",), "not one string 'a'"),
        (checks.check_ids, (["a", 3],), r"3 \(row 1\) is no string"),
        (checks.check_ids, (["\ud800"],), r"\(row 0\) holds half a surrogate pair"),
        (checks.check_ids, (["a", "b", "a"],), r"'a' \(row 2\) occurs twice"),
        (
            checks.check_ids,
            ([*map(str, range(300_000)), "7"],),
            r"'7' \(row 300000\)",
        ),  # in one pass
        (checks.check_codes, (CODES, 9, "queries"), "queries: codes of 9 bits are"),
        (by_modality, ({"image": CODES}, "image"), "the codes name their modalities; leave it out"),
        (by_modality, ({},), "give the codes of at least one modality"),
        (by_modality, (CODES, "../image"), "modality '../image': a plain name is expected"),
        (by_modality, (CODES, "x" * 51), "a plain name is expected"),
        (by_modality, (CODES[0],), r"\(n, bytes\) uint8 are expected, not \(1,\)"),
        (by_modality, (CODES[:, :0],), r"\(n, bytes\) uint8 are expected, not \(1, 0\)"),
        (by_modality, ({"image": CODES, "text": CODES[:0]},), "0 text codes for 1 ids"),
        (by_modality, (CODES, None, 7), "image codes: bits past the 7th are set"),
        (checks.check_metadata, ([{}], ["a", "b"]), "1 mappings of metadata for 2 ids"),
        (
            checks.check_metadata,
            ([None], ["a"]),
            "metadata of 'a': a mapping is expected, not None",
        ),
        (checks.check_metadata, ([{"image": 3}], ["a"]), "image is a string, not 3"),
        (
            checks.check_metadata,
            ([{"labels": "dog"}], ["a"]),
            "labels are a list of strings, not 'dog'",
        ),
        (checks.check_metadata, ([{"": 1}], ["a"]), "'' is no key"),
        (checks.check_metadata, ([{1: 1}], ["a"]), "1 is no key"),
        (checks.check_metadata, ([{"id": "b"}], ["a"]), "'id' means something else in filters"),
        (checks.check_metadata, ([{"tags": ["x", 3]}], ["a"]), "tags: a list holds strings, not 3"),
        (checks.check_metadata, ([{"year": float("inf")}], ["a"]), "year is inf; leave it out"),
        (checks.check_metadata, ([{"year": -(2**63) - 1}], ["a"]), "has more than 64 bits"),
        (checks.check_metadata, ([{"size": (1, 2)}], ["a"]), "list of strings, not tuple"),
        (
            checks.check_metadata,
            ([{"title": "\udc00"}], ["a"]),
            "title: holds half a surrogate pair",
        ),
        (checks.check_metadata, ([{"tags": ["a\0"]}], ["a"]), "tags: holds a NUL"),
        (checks.check_count, (0, "k", 1), "k is 0; a whole number of at least 1 is expected"),
        (checks.check_count, (True, "k", 1), "k is True"),
        (checks.check_count, (2.0, "k", 1), "k is 2.0"),
        (
            Facts.check,
            (Facts(64, "m"), "x.store", Facts(32, "")),
            "holds codes of 64 bits, not 32",
        ),
        (
            Facts.check,
            (Facts(64, "m"), "x.store", Facts(0, "n")),
            "codes of another model",
        ),
        (
            Facts.check,
            (Facts(64, ""), "x.store", Facts(0, "n")),
            "codes of an unknown model",
        ),
        (
            checks.choose_modality,
            (None, ["sound", "text"], "x.store"),
            "say which modality is searched: sound or text",
        ),
        (
            checks.choose_modality,
            ("text", ["image"], "x.store"),
            "holds image codes, no text codes",
        ),
    ],
)
def test_arguments_that_no_store_takes_are_refused(check, arguments, message):
    check_refusal(message, check, *arguments)


@pytest.fixture
def photos(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("CHANNELHASH_CACHE", str(tmp_path / "cache" / "channelhash"))
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "a.jpg").touch()
    return folder


def test_the_store_in_the_folder_is_opened_by_its_name(photos):
    address = Address.parse(photos)
    assert address.kind == "folder"
    assert find_store(photos) is None
    assert address.store == address
    with ch.open_store(choose_place(photos), n_bits=8) as store:
        store.add(["a.jpg"], np.array([[7]], np.uint8))
    assert find_store(photos) == address.store.path == photos / ".channelhash"
    assert ch.open_store(photos).ids() == ["a.jpg"]


def test_where_nothing_can_be_written_one_line_says_what_to_do(photos, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    check_refusal("no store can be made", choose_place, photos)


OURS = {
    "store.json": '{"format": "channelhash store 3", "n_bits": 8}',
    "config.yaml": "data:\n  kind: table\nloss:\n  name: dsch\nmodel:\n  name: small\ntrain:\n  epochs: 1\n",
    "config.json": '{"name": "small", "n_bits": 8, "architecture": {}}',
    os.path.join("model", "config.json"): '{"name": "small", "n_bits": 8, "architecture": {}}',
}


@pytest.mark.parametrize("own", OURS)
def test_stores_runs_and_models_are_no_plain_folders_and_those_of_other_programs_are(photos, own):
    (photos / own).parent.mkdir(exist_ok=True)
    (photos / own).write_text(OURS[own])
    address = Address.parse(photos)
    assert address.kind != "folder"
    for content in ("", '{"name": "gallery", "format": "store"}', "data: here\nmodel: Canon\n"):
        (photos / own).write_text(content)
        assert address.kind == "folder"


_DATES = st.sampled_from(
    ["2019-07-14 10:20:30", "2019-07", "2019", "14.7.2019", "2020-01-01", 2019, None]
)
METADATA = st.fixed_dictionaries(
    {}, optional={"date": _DATES, "taken": _DATES, "encoded_from": st.just("9 99 98 x")}
)
ITEMS = st.dictionaries(st.text("ab/", min_size=1, max_size=5), METADATA, max_size=12).map(
    lambda of: list(of.items())
)


@given(ITEMS, st.integers(0, 9))
def test_every_order_holds_each_item_once_and_ties_are_by_id(items, seed):
    catalogue, dates = Catalogue.of(items), {name: date_of(metadata) for name, metadata in items}
    kinds = ("newest", "oldest", "name", "random")
    orders = {
        order: [catalogue.ids[place] for place in catalogue.places(order, seed)] for order in kinds
    }
    names = sorted(dates)
    dated, undated = (
        [name for name in names if dates[name]],
        [name for name in names if not dates[name]],
    )
    newest = sorted(dated, key=lambda name: dates[name], reverse=True)
    assert (orders["name"], orders["newest"]) == (names, newest + undated)
    assert orders["oldest"] == newest[::-1] + undated
    assert sorted(orders["random"]) == names
    among = set(names[::2])
    found = [catalogue.ids[place] for place in catalogue.places("newest", 0, among)]
    assert found == [name for name in orders["newest"] if name in among]


def test_only_dates_that_can_be_compared_narrow_in_every_store(store):
    written = ["07/14/2019", "14.07.2012", "2019-7-4", "2019-1-4", "0000-00-00", "2014", "2014-05"]
    written += ["2014-05-06 07:08:09", "2019-11-05", "n.d.", "2019-Jul"]
    metadata = [{"date": date} for date in written]
    store.add(written, np.zeros((len(written), 2), np.uint8), metadata=metadata)
    for question, found in {
        "dogs before 2015": ["2014", "2014-05", "2014-05-06 07:08:09"],
        "dogs before July 2014": ["2014-05", "2014-05-06 07:08:09"],
        "dogs since October 2019": ["2019-11-05"],
        "dogs not in 2014": ["2019-11-05"],
        "dogs in July": [],
        "dogs from May to November": ["2014-05", "2014-05-06 07:08:09", "2019-11-05"],
    }.items():
        _, where = narrow(store, Question(question))
        assert (store.ids(where) if where else []) == sorted(found), question


@given(ITEMS)
def test_folders_and_months_count_what_their_filters_find(items):
    catalogue = Catalogue.of(items)
    for folder, count in catalogue.folders.items():
        assert count == sum(name.startswith(f"{folder}/") for name, _ in items)
    for month, count in catalogue.months.items():
        tree = parse_filter(date_filter(DATES, f"{{0}} >= '{month}' AND {{0}} < '{month}~'"), DATES)
        assert count == sum(passes(tree, name, metadata) for name, metadata in items)
    assert sum(catalogue.months.values()) <= catalogue.n_dated


@given(st.integers(1, 40), st.integers(0, 5), st.integers(0, 2**40))
def test_items_that_are_added_leave_the_others_in_their_random_order(n, more, seed):
    names = [f"{number}" for number in range(n + more)]
    few, all_of_them = (Catalogue.of([(name, {}) for name in some]) for some in (names[:n], names))
    kept = [place for place in all_of_them.places("random", seed) if place < n]
    assert kept == few.places("random", seed).tolist()


def test_a_link_to_a_page_in_random_order_shows_the_same_items_in_the_next_version():
    catalogue = Catalogue.of([(name, {}) for name in "abcdef"])
    assert "".join(catalogue.ids[place] for place in catalogue.places("random", 7)) == "cebadf"


def test_without_a_written_date_the_time_of_the_file_counts():
    assert date_of(
        {"encoded_from": "12 1563099630000000000 1563099630000000000 0123"}
    ) == file_date(1563099630 * 10**9)
    assert date_of({"encoded_from": "0123"}) == ""
    for seconds in (0, -1, -11_644_473_600, 253_402_300_800 + 86_400, 2**62 // 10**9 * 10**9):
        assert file_date(seconds * 10**9) is None
        assert date_of({"encoded_from": f"12 {seconds * 10**9} 0 0123"}) == ""
    assert Catalogue.of([("a", {"encoded_from": "1 5 5 0"})]).months == {}
