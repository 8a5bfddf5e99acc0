"""Near-duplicates of a store."""

import numpy as np
import pytest
from tests.search.contract import KINDS, N_BITS

import channelhash as ch
from channelhash.errors import InputError
from channelhash.search.duplicates import DuplicateGroup, find_duplicates
from channelhash.search.local.store import open_codes


def of_numbers(numbers: list[int]) -> np.ndarray:
    return ch.codes.pack(np.array([[number >> bit & 1 for bit in range(N_BITS)] for number in numbers], dtype=bool))


@pytest.mark.parametrize("kind", KINDS)
def test_groups_of_a_store_old_and_new_items_together(kind, tmp_path):
    """Some codes lie in a snapshot, some were written since, one has gone."""
    store = KINDS[kind].open(tmp_path)
    store.add(["é", "b", "a", "far"], of_numbers([0b111, 0, 0b1, 0b111111110000]), metadata=[{"year": 1}] * 4)
    if kind == "embedded":
        store.make_snapshot()
    store.add(["c", "gone"], of_numbers([0b11000000, 0]), metadata=[{"year": 2}] * 2)
    store.delete(["gone"])
    assert find_duplicates(store) == [DuplicateGroup(["a", "b", "c", "é"], [0, 1, 3, 2])]
    assert find_duplicates(store, radius=1) == [DuplicateGroup(["a", "b"], [0, 1])]
    assert find_duplicates(store, where="year = 1") == [DuplicateGroup(["a", "b", "é"], [0, 1, 2])]
    assert find_duplicates(store, where="year = 3") == []
    with pytest.raises(InputError, match="no text codes"):
        find_duplicates(store, modality="text")
    with pytest.raises(InputError, match="radius is -1"):
        find_duplicates(store, radius=-1)
    store.close()


def test_large_groups_come_first_then_ids():
    codes = ch.CodeSet([*"abcde"], {"image": np.array([[0], [255], [240], [15], [255]], np.uint8)}, None, n_bits=8)
    assert [group.ids for group in find_duplicates(open_codes(codes), radius=0)] == [["b", "e"]]
    assert [group.ids for group in find_duplicates(open_codes(codes), radius=4)] == [[*"abcde"]]


def test_an_empty_store_has_none(tmp_path):
    assert find_duplicates(ch.open_store(tmp_path / "store", n_bits=8)) == []
