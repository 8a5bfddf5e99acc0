"""Rows of two collections joined by id, and the teacher's partitions in the student's rows."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from channelhash.data.collection import find_partners
from channelhash.data.records import Records
from channelhash.data.splits import Splits
from channelhash.errors import InputError


def records(ids):
    return Records(tuple(ids), {"text": tuple(ids)}, np.zeros((len(ids), 0), dtype=bool), ())


names = st.lists(st.sampled_from("abcdefghij"), unique=True, min_size=1)


@settings(max_examples=30)
@given(names, names)
def test_partners_are_the_rows_of_one_id(own, theirs):
    common = set(own) & set(theirs)
    if not common:
        with pytest.raises(InputError, match="joined by id"):
            find_partners(records(own), records(theirs))
        return
    found = find_partners(records(own), records(theirs))
    assert {own[i]: theirs[j] for i, j in enumerate(found.of_student) if j >= 0} == {name: name for name in common}
    assert {theirs[j]: own[i] for j, i in enumerate(found.of_teacher) if i >= 0} == {name: name for name in common}
    alone = {line.split(":")[0].removeprefix("item ") for line in found.unmatched}
    assert alone == set(own) ^ set(theirs)
    assert len(found.unmatched) == len(alone)


def test_partitions_follow_their_items():
    found = find_partners(records("zyxba"), records("abcyx"))
    rows = {name: np.array(part) for name, part in (("query", [0, 2]), ("retrieval", [1, 3, 4]), ("train", [1, 4]))}
    none = np.array([], dtype=np.int64)
    splits = found.splits(Splits(**rows, validation_query=none, validation_retrieval=none))
    assert {name: part.tolist() for name, part in vars(splits).items()} == {
        "query": [4],
        "retrieval": [1, 2, 3],
        "train": [2, 3],
        "validation_query": [],
        "validation_retrieval": [],
    }
    with pytest.raises(InputError, match="none of the teacher's 1 query items"):
        found.splits(Splits(np.array([2]), np.array([0]), none, none, none))


def test_an_id_twice_is_refused_unless_the_lists_are_the_same():
    twice = find_partners(records("aab"), records("aab"))
    assert twice.of_student.tolist() == twice.of_teacher.tolist() == [0, 1, 2]
    with pytest.raises(InputError, match="the teacher's data has the id 'a' twice"):
        find_partners(records("ab"), records("aab"))
