"""Arguments that no store takes are refused before anything is changed."""

import numpy as np
import pytest

from channelhash.errors import InputError
from channelhash.search.items import (
    check_codes,
    check_count,
    check_ids,
    check_metadata,
    check_opened_as,
    choose_modality,
    codes_by_modality,
)

CODES = np.array([[7]], np.uint8)


class Counted(str):
    """A string that counts how often it is compared."""

    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Counted.compared += 1
        return str.__eq__(self, other)


def test_ids_that_occur_twice_are_found_in_one_pass():
    names = [Counted(f"{row}") for row in range(1000)]
    with pytest.raises(InputError, match=r"'999' \(row 1000\) occurs twice"):
        check_ids([*names, names[-1]])
    assert Counted.compared < 10_000


def by_modality(codes, modality=None, n_bits=None):
    return codes_by_modality(codes, modality, n=1, n_bits=n_bits)


@pytest.mark.parametrize(
    ("check", "arguments", "message"),
    [
        (check_ids, ("a",), "not one string 'a'"),
        (check_ids, (["a", 3],), r"3 \(row 1\) is no string"),
        (check_ids, (["\ud800"],), r"\(row 0\) holds half a surrogate pair"),
        (check_ids, (["a", "b", "a"],), r"'a' \(row 2\) occurs twice"),
        (check_codes, (CODES, 9, "queries"), "queries: codes of 9 bits are"),
        (by_modality, ({"image": CODES}, "image"), "the codes name their modalities; leave it out"),
        (by_modality, ({},), "give the codes of at least one modality"),
        (by_modality, (CODES, "../image"), "modality '../image': a plain name is expected"),
        (by_modality, (CODES, "x" * 51), "a plain name is expected"),
        (by_modality, (CODES[0],), r"\(n, bytes\) uint8 are expected, not \(1,\)"),
        (by_modality, (CODES[:, :0],), r"\(n, bytes\) uint8 are expected, not \(1, 0\)"),
        (by_modality, ({"image": CODES, "text": CODES[:0]},), "0 text codes for 1 ids"),
        (by_modality, (CODES, None, 7), "image codes: bits past the 7th are set"),
        (check_metadata, ([{}], ["a", "b"]), "1 mappings of metadata for 2 ids"),
        (check_metadata, ([None], ["a"]), "metadata of 'a': a mapping is expected, not None"),
        (check_metadata, ([{"image": 3}], ["a"]), "image is a string, not 3"),
        (check_metadata, ([{"labels": "dog"}], ["a"]), "labels are a list of strings, not 'dog'"),
        (check_metadata, ([{"": 1}], ["a"]), "'' is no key"),
        (check_metadata, ([{1: 1}], ["a"]), "1 is no key"),
        (check_metadata, ([{"id": "b"}], ["a"]), "'id' means something else in filters"),
        (check_metadata, ([{"tags": ["x", 3]}], ["a"]), "tags: a list holds strings, not 3"),
        (check_metadata, ([{"year": float("inf")}], ["a"]), "year is inf; leave it out"),
        (check_metadata, ([{"year": -(2**63) - 1}], ["a"]), "has more than 64 bits"),
        (check_metadata, ([{"size": (1, 2)}], ["a"]), "list of strings, not tuple"),
        (check_metadata, ([{"title": "\udc00"}], ["a"]), "title: holds half a surrogate pair"),
        (check_metadata, ([{"tags": ["a\0"]}], ["a"]), "tags: holds a NUL"),
        (check_count, (0, "k", 1), "k is 0; a whole number of at least 1 is expected"),
        (check_count, (True, "k", 1), "k is True"),
        (check_count, (2.0, "k", 1), "k is 2.0"),
        (check_opened_as, ("x.store", (64, "m"), 32, ""), "holds codes of 64 bits, not 32"),
        (check_opened_as, ("x.store", (64, "m"), None, "n"), "codes of another model"),
        (check_opened_as, ("x.store", (64, ""), None, "n"), "codes of an unknown model"),
        (choose_modality, (None, ["sound", "text"], "x.store"), "say which modality is searched: sound or text"),
        (choose_modality, ("text", ["image"], "x.store"), "holds image codes, no text codes"),
    ],
)
def test_arguments_that_no_store_takes_are_refused(check, arguments, message):
    with pytest.raises(InputError, match=message):
        check(*arguments)
