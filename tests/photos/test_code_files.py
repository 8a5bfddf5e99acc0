"""Files of codes into stores: what is new is written, what does not fit is refused."""

import numpy as np
import pytest

import channelhash as ch
from channelhash.codes.parquet import is_code_file
from channelhash.photos.code_files import add_codes, create_from_codes
from refusals import check_refusal


def save(path, ids, codes, model="", **columns):
    packed = np.array(codes, np.uint8).reshape(len(ids), -1)
    ch.CodeSet(ids, {"image": packed}, None, n_bits=8 * packed.shape[1], model=model, **columns).save(path)
    return path


def test_changed_codes_and_texts_are_written_again(tmp_path):
    store = str(tmp_path / "a.store")
    create_from_codes(store, save(tmp_path / "a.parquet", "abc", [1, 2, 3], texts=["one", "two", "three"]))
    done = add_codes(store, save(tmp_path / "b.parquet", "bcad", [2, 9, 1, 4], texts=["two", "three", "1", "four"]))
    assert (done.added, done.replaced, done.unchanged, done.items) == (1, 2, 1, 4)
    with_store = ch.open_store(store)
    assert [(item.codes["image"].tolist(), item.metadata["text"]) for item in with_store.get(["a", "b", "c", "d"])] == [
        ([1], "1"),
        ([2], "two"),
        ([9], "three"),
        ([4], "four"),
    ]
    with_store.close()


@pytest.mark.parametrize(("ids", "codes", "model", "says"), [
    ("ab", [[1, 2], [3, 4]], "m", "holds codes of 8 bits, not 16"),
    ("ab", [1, 2], "other", "holds codes of another model"),
    ("ab", [1, 2], "", "does not say which model made its codes"),
    ("aa", [1, 2], "m", "b.parquet: "),
])  # fmt: skip
def test_codes_that_do_not_fit_change_nothing(ids, codes, model, says, tmp_path):
    store = str(tmp_path / "a.store")
    create_from_codes(store, save(tmp_path / "a.parquet", "x", [1], "m"))
    check_refusal(says, add_codes, store, save(tmp_path / "b.parquet", list(ids), codes, model))
    with_store = ch.open_store(store)
    assert with_store.ids() == ["x"]
    with_store.close()


def test_a_store_is_neither_made_twice_nor_added_to_where_none_is(tmp_path):
    file, store = save(tmp_path / "a.parquet", "x", [1]), str(tmp_path / "a.store")
    check_refusal(r"no store; make one with `channelhash index create .*a\.parquet`", add_codes, store, file)
    create_from_codes(store, file)
    check_refusal("already a store", create_from_codes, store, file)


def test_other_files_are_no_files_of_codes(tmp_path):
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1")
    assert is_code_file(save(tmp_path / "a.parquet", "x", [1]))
    assert not any(map(is_code_file, (broken, tmp_path, tmp_path / "none.parquet")))
