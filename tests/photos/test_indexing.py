"""Collections go into a store once, and again only where they have changed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import channelhash as ch
from channelhash.codes.parquet import is_code_file
from channelhash.models import MODELS
from channelhash.photos.source import Source
from channelhash.photos.stores import add_codes, create_from_codes
from picture_runs import write_pictures
from refusals import check_refusal
from small_runs import write_features
from small_stores import encode_into, picture_folder, small_model


def counts(done):
    return done.added, done.replaced, done.unchanged, done.pruned, len(done.problems)


def test_a_folder_is_encoded_once_and_again_where_it_changes(tmp_path, model, store, no_encoding):
    folder = picture_folder(tmp_path / "photos")
    assert counts(encode_into(store, model, Source.read(folder))) == (9, 0, 0, 0, 0)
    names = store.ids()
    assert names == sorted([f"{i}.png" for i in range(0, 9, 2)] + [f"deep/er/{i}.png" for i in range(1, 9, 2)])
    expected = model.encode_images([folder / name for name in names])
    np.testing.assert_array_equal([item.codes["image"] for item in store.get(names)], expected)
    with no_encoding():
        assert counts(encode_into(store, model, Source.read(folder))) == (0, 0, 9, 0, 0)
        os.utime(folder / "0.png", (1, 1))  # another time, the same content
        assert counts(encode_into(store, model, Source.read(folder))) == (0, 0, 9, 0, 0)
        assert str(store.get(["0.png"])[0].metadata["encoded_from"]).split()[1] == "1000000000"
    Image.new("RGB", (40, 30), "white").save(folder / "2.png")
    Image.new("RGB", (40, 30), "black").save(folder / "new.png")
    (folder / "4.png").unlink()
    assert counts(encode_into(store, model, Source.read(folder))) == (1, 1, 7, 0, 0)
    code = model.encode_images([folder / "2.png"])[0]
    np.testing.assert_array_equal(store.get(["2.png"])[0].codes["image"], code)
    assert "4.png" in store
    store.add(["mine"], code[None], metadata=[{"image": "/elsewhere/x.png"}])
    assert counts(encode_into(store, model, Source.read(folder), prune=True)) == (0, 0, 9, 1, 0)
    assert "4.png" not in store
    assert "mine" in store


def test_broken_pictures_are_reported_and_left_out(tmp_path, model, store):
    folder = picture_folder(tmp_path / "photos", 3)
    whole = (folder / "0.png").read_bytes()
    (folder / "cut.png").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.png").write_bytes(b"")
    (folder / "words.png").write_text("no picture")
    done = encode_into(store, model, Source.read(folder))
    assert counts(done) == (3, 0, 0, 0, 3)
    for name, line in zip(("cut", "empty", "words"), done.problems, strict=True):
        assert f"{name}.png" in line
    assert encode_into(store, model, Source.read(folder)).problems == done.problems  # each time, until they are mended
    (folder / "cut.png").write_bytes(whole)
    assert counts(encode_into(store, model, Source.read(folder))) == (1, 0, 3, 0, 2)


def test_a_changed_row_of_a_table_is_replaced_with_both_codes(tmp_path, model, store):
    table = write_pictures(tmp_path / "data", 6)
    assert counts(encode_into(store, model, Source.read(table))) == (6, 0, 0, 0, 0)
    item = store.get(["item003"])[0]
    assert set(item.codes) == {"image", "text"}
    np.testing.assert_array_equal(item.codes["text"], model.encode_texts([str(item.metadata["text"])])[0])
    table.write_text(table.read_text().replace(item.metadata["text"], "some dark words"))
    done = encode_into(store, model, Source.read(table))
    assert done.replaced >= 1
    assert done.replaced + done.unchanged == 6
    item = store.get(["item003"])[0]
    np.testing.assert_array_equal(item.codes["text"], model.encode_texts(["some dark words"])[0])
    assert counts(encode_into(store, model, Source.read(table))) == (0, 0, 6, 0, 0)


def test_features_are_encoded_again_only_where_they_differ(tmp_path, store):
    features = write_features(tmp_path / "f.npz", 20)
    source = Source.read(features)
    model = MODELS["features"].create(source.records, 12, hidden=[8])
    assert counts(encode_into(store, model, source)) == (20, 0, 0, 0, 0)
    changed = dict(np.load(features))
    changed["text"][3] += 1
    np.savez(features, **changed)
    assert counts(encode_into(store, model, Source.read(features))) == (0, 1, 19, 0, 0)


def test_a_killed_job_keeps_what_it_has_written_and_goes_on(tmp_path, model):
    folder, place = picture_folder(tmp_path / "photos", 9), tmp_path / "store"
    small_model(tmp_path)
    code = f"""
import os, signal, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import small_stores
from pathlib import Path
import channelhash as ch
from channelhash.photos import encode
from channelhash.photos.source import Source
encode._BATCH = 4
model = ch.load_model({str(tmp_path / "model")!r})
def progress(name):
    def advance(done, total):
        if name == "encode" and done == 8:
            os.kill(os.getpid(), signal.SIGKILL)
    return advance
store = ch.open_store({str(place)!r}, model.n_bits, model.fingerprint())
small_stores.encode_into(store, model, Source.read(Path({str(folder)!r})), progress)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    store = ch.open_store(place)
    written = len(store)
    assert written in (8, 9)  # the last batch may have been written meanwhile
    assert counts(encode_into(store, model, Source.read(folder))) == (9 - written, 0, written, 0, 0)


def test_what_cannot_be_indexed_is_refused(tmp_path, model, store):
    folder, other = picture_folder(tmp_path / "a", 2), picture_folder(tmp_path / "b", 2)
    encode_into(store, model, Source.read(folder))
    says = r"'0.png' is already that of .*index the folder that holds both"
    check_refusal(says, encode_into, store, model, Source.read(other))
    for path in folder.rglob("*.png"):
        path.unlink()
    assert counts(encode_into(store, model, Source.read(other))) == (0, 0, 2, 0, 0)  # the collection was moved
    table = tmp_path / "t.csv"
    table.write_text("id,text\na,words\n")
    check_refusal("--prune: goes with a folder", encode_into, store, model, Source.read(table), prune=True)
    features = Source.read(write_features(tmp_path / "f.npz", 3))
    check_refusal("the items are features", encode_into, store, model, features)
    assert Path(str(store.get(["0.png"])[0].metadata["image"])) == other / "0.png"


def save(path, ids, codes, model="", **columns):
    packed = np.array(codes, np.uint8).reshape(len(ids), -1)
    ch.CodeSet(ids, {"image": packed}, None, n_bits=8 * packed.shape[1], model=model, **columns).save(path)
    return path


def test_changed_codes_and_texts_are_written_again(tmp_path):
    store = str(tmp_path / "a.store")
    create_from_codes(store, save(tmp_path / "a.parquet", "abc", [1, 2, 3], texts=["one", "two", "three"]))
    done = add_codes(store, save(tmp_path / "b.parquet", "bcad", [2, 9, 1, 4], texts=["two", "three", "1", "four"]))
    assert (done.added, done.replaced, done.unchanged, done.items) == (1, 2, 1, 4)
    with ch.open_store(store) as opened:
        written = [(item.codes["image"].tolist(), item.metadata["text"]) for item in opened.get(["a", "b", "c", "d"])]
    assert written == [([1], "1"), ([2], "two"), ([9], "three"), ([4], "four")]


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
    with ch.open_store(store) as opened:
        assert opened.ids() == ["x"]


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
