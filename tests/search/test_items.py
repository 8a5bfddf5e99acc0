"""The order of a store's items against plain sorting."""

from hypothesis import given
from hypothesis import strategies as st

from channelhash.search.filters import parse_filter, passes
from channelhash.search.items import DATES, Catalogue, date_filter, date_of, file_date

_DATES = st.sampled_from(["2019-07-14 10:20:30", "2019-07", "2019", "14.7.2019", "2020-01-01", 2019, None])
METADATA = st.fixed_dictionaries({}, optional={"date": _DATES, "taken": _DATES, "encoded_from": st.just("9 99 98 x")})
ITEMS = st.dictionaries(st.text("ab/", min_size=1, max_size=5), METADATA, max_size=12).map(lambda of: list(of.items()))


@given(ITEMS, st.integers(0, 9))
def test_every_order_holds_each_item_once_and_ties_are_by_id(items, seed):
    catalogue, dates = Catalogue.of(items), {name: date_of(metadata) for name, metadata in items}
    kinds = ("newest", "oldest", "name", "random")
    orders = {order: [catalogue.ids[place] for place in catalogue.places(order, seed)] for order in kinds}
    names = sorted(dates)
    dated, undated = [name for name in names if dates[name]], [name for name in names if not dates[name]]
    newest = sorted(dated, key=lambda name: dates[name], reverse=True)
    assert (orders["name"], orders["newest"]) == (names, newest + undated)
    assert orders["oldest"] == newest[::-1] + undated
    assert sorted(orders["random"]) == names
    among = set(names[::2])
    found = [catalogue.ids[place] for place in catalogue.places("newest", 0, among)]
    assert found == [name for name in orders["newest"] if name in among]


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
    assert date_of({"encoded_from": "12 1563099630000000000 1563099630000000000 0123"}) == file_date(1563099630 * 10**9)
    assert date_of({"encoded_from": "0123"}) == ""
    for seconds in (0, -1, -11_644_473_600, 253_402_300_800 + 86_400, 2**62 // 10**9 * 10**9):
        assert file_date(seconds * 10**9) is None
        assert date_of({"encoded_from": f"12 {seconds * 10**9} 0 0123"}) == ""
    assert Catalogue.of([("a", {"encoded_from": "1 5 5 0"})]).months == {}
