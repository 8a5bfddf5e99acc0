"""Collections go into a store once, and again only where they have changed; their codes may be
fitted to them.
"""

import os
import random
import shutil
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from PIL import ExifTags, Image

import channelhash as ch
from channelhash.codes.stage import Stage
from channelhash.indexing import encode, fit
from channelhash.indexing.fit import NewCodes
from channelhash.indexing.source import Source
from channelhash.indexing.stores import add_to_store, create_store, put_codes
from channelhash.models.description import fit_facts
from channelhash.models.fitted import MIN_PAIRS
from channelhash.search import Address
from channelhash.search.match import described_fit
from extras import needs
from picture_runs import tiny_clip, write_pictures
from refusals import check_refusal
from small_runs import interrupt_at, run_json, write_features
from small_stores import EXTRACTORS, encode_into, picture_folder


def counts(done):
    return done.added, done.replaced, done.unchanged, done.pruned, len(done.problems)


def test_a_folder_is_encoded_once_and_again_where_it_changes(tmp_path, model, store, no_encoding):
    folder = picture_folder(tmp_path / "photos")
    assert counts(encode_into(store, model, Source.read(folder))) == (9, 0, 0, 0, 0)
    names = store.ids()
    assert names == sorted(
        [f"{i}.png" for i in range(0, 9, 2)] + [f"deep/er/{i}.png" for i in range(1, 9, 2)]
    )
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
    # each time, until they are mended
    assert encode_into(store, model, Source.read(folder)).problems == done.problems
    (folder / "cut.png").write_bytes(whole)
    assert counts(encode_into(store, model, Source.read(folder))) == (1, 0, 3, 0, 2)


def test_a_changed_row_of_a_table_is_replaced_with_both_codes(tmp_path, model, store):
    table = write_pictures(tmp_path / "data", 6)
    assert counts(encode_into(store, model, Source.read(table))) == (6, 0, 0, 0, 0)
    item = store.get(["item003"])[0]
    assert set(item.codes) == {"image", "text"}
    np.testing.assert_array_equal(
        item.codes["text"], model.encode_texts([str(item.metadata["text"])])[0]
    )
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
    model = ch.models.MODELS["features"].create(source.records, 12, hidden=[8])
    assert counts(encode_into(store, model, source)) == (20, 0, 0, 0, 0)
    changed = dict(np.load(features))
    changed["text"][3] += 1
    np.savez(features, **changed)
    assert counts(encode_into(store, model, Source.read(features))) == (0, 1, 19, 0, 0)


def test_a_job_that_ends_early_keeps_what_it_has_written_and_goes_on(
    tmp_path, model, store, monkeypatch
):
    """What a store has written it has also after SIGKILL: see
    `tests.search.adding_until_killed`.
    """
    folder = picture_folder(tmp_path / "photos", 9)
    monkeypatch.setattr(encode, "_BATCH", 4)
    with pytest.raises(KeyboardInterrupt):
        encode_into(store, model, Source.read(folder), lambda stage: interrupt_at(8))
    store.close()
    with ch.open_store(tmp_path / "store") as again:
        assert len(again) == 8
        assert counts(encode_into(again, model, Source.read(folder))) == (1, 0, 8, 0, 0)


DATED_NAMES = [
    "IMG_20190714_102030.png", "14.07.2018.png", "scan.png", "FB_IMG_1563098430123.png", "b 2017-06-05.png",
]  # fmt: skip
DATED_FOLDERS = ["", "2016/05/", "2016/05 May/", "2015-04-03 Porto/", "Juli 2014/", "other/"]
SIDECAR = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description xmlns:exif="http://ns.adobe.com/exif/1.0/" xmlns:xmp="http://ns.adobe.com/xap/1.0/" '
    'exif:DateTimeOriginal="{}-02-03T10:00:00" xmp:Rating="{}"/></rdf:RDF></x:xmpmeta>'
)


def change(folder, draw):
    """Rename, move, date or describe one of the pictures, or a folder of them, as people do."""
    pictures = sorted(folder.rglob("*.png"))
    picture = draw.choice(pictures)
    place = folder / f"{draw.choice(DATED_FOLDERS)}{draw.randrange(100)} {draw.choice(DATED_NAMES)}"
    kind = draw.choice(["move", "move", "folder", "time", "sidecar", "no sidecar"])
    if kind == "time":
        os.utime(picture, (draw.randrange(10**9), draw.randrange(10**9)))
    elif kind == "sidecar":
        said = SIDECAR.format(draw.randrange(1950, 2000), draw.randrange(6))
        picture.with_suffix(".xmp").write_text(said)
    elif kind == "no sidecar":
        picture.with_suffix(".xmp").unlink(missing_ok=True)
    elif kind == "folder" and picture.parent != folder:
        picture.parent.rename(picture.parent.with_name(f"2013-0{draw.randrange(1, 10)}-10"))
    elif not place.exists():
        os.renames(picture, place)


@pytest.mark.parametrize("seed", range(2))
def test_a_store_that_followed_changes_is_like_one_made_afterwards(
    tmp_path, model, store, no_encoding, seed
):
    folder, draw = picture_folder(tmp_path / "photos", 5), random.Random(seed)
    exif = Image.Exif()
    exif[ExifTags.Base.DateTime] = "2012:03:04 05:06:07"
    Image.new("RGB", (40, 30), "white").save(folder / "taken.png", exif=exif)
    encode_into(store, model, Source.read(folder))
    store.update(["0.png"], [{"mine": 7}])
    for step in range(5):
        for _ in range(draw.randrange(1, 4)):
            change(folder, draw)
        with no_encoding():
            assert encode_into(store, model, Source.read(folder)).items == 6
        fresh = ch.open_store(tmp_path / f"fresh{step}", model.n_bits, model.fingerprint())
        encode_into(fresh, model, Source.read(folder))
        kept = {item.id: item for item in store.get(store.ids())}
        assert [item.metadata.pop("mine", None) for item in kept.values()].count(7) == 1
        for item in fresh.get(fresh.ids()):
            assert kept[item.id].metadata == item.metadata
            np.testing.assert_equal(kept[item.id].codes, item.codes)
        fresh.close()


def test_a_renamed_picture_gets_the_caption_beside_it_and_the_code_of_that(tmp_path, model, store):
    folder = picture_folder(tmp_path / "photos", 2)
    encode_into(store, model, Source.read(folder))
    (folder / "0.png").rename(folder / "new.png")
    said = SIDECAR.format(1999, 5).replace(
        "<rdf:Description ", '<rdf:Description dc:description="blue" '
    )
    said = said.replace("xmlns:exif", 'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:exif')
    (folder / "new.xmp").write_text(said)
    done = encode_into(store, model, Source.read(folder))
    assert (done.moved, done.replaced, done.added, done.items) == (1, 1, 0, 2)
    item = store.get(["new.png"])[0]
    assert (item.metadata["text"], item.metadata["taken"]) == ("blue", "1999-02-03 10:00:00")
    np.testing.assert_array_equal(item.codes["text"], model.encode_texts(["blue"])[0])


def test_what_another_version_read_of_names_is_read_again(tmp_path, model, store, no_encoding):
    folder = picture_folder(tmp_path / "photos", 2)
    (folder / "0.png").rename(folder / "14.07.2019.png")
    encode_into(store, model, Source.read(folder))
    store.update(["14.07.2019.png"], [{"tags_from": "- ", "date": "2026-11-28 10:00:00"}])
    with no_encoding():
        encode_into(store, model, Source.read(folder))
    assert store.get(["14.07.2019.png"])[0].metadata["date"] == "2019-07-14"


def test_what_cannot_be_indexed_is_refused(tmp_path, model, store):
    folder, other = picture_folder(tmp_path / "a", 2), picture_folder(tmp_path / "b", 2)
    encode_into(store, model, Source.read(folder))
    says = r"'0.png' is already that of .*index the folder that holds both"
    check_refusal(says, encode_into, store, model, Source.read(other))
    for path in folder.rglob("*.png"):
        path.unlink()
    # the collection was moved
    assert counts(encode_into(store, model, Source.read(other))) == (0, 0, 2, 0, 0)
    table = tmp_path / "t.csv"
    table.write_text("id,text\na,words\n")
    check_refusal(
        "prune: goes with a folder", encode_into, store, model, Source.read(table), prune=True
    )
    assert Path(str(store.get(["0.png"])[0].metadata["image"])) == other / "0.png"


def save(path, ids, codes, model="", **columns):
    needs("parquet")
    packed = np.array(codes, np.uint8).reshape(len(ids), -1)
    ch.CodeSet(
        ids, {"image": packed}, None, n_bits=8 * packed.shape[1], model=model, **columns
    ).save(path)
    return path


def test_changed_codes_and_texts_are_written_again_into_a_store_that_is_made_once(tmp_path):
    store = Address.parse(tmp_path / "a.store")
    file = save(tmp_path / "a.parquet", "abc", [1, 2, 3], texts=["one", "two", "three"])
    check_refusal(
        r"no store; make one with `channelhash index create .*a\.parquet`", put_codes, store, file
    )
    put_codes(store, file, is_new=True)
    check_refusal("already a store", put_codes, store, file, is_new=True)
    done = put_codes(
        store,
        save(tmp_path / "b.parquet", "bcad", [2, 9, 1, 4], texts=["two", "three", "1", "four"]),
    )
    assert (done.added, done.replaced, done.unchanged, done.items) == (1, 2, 1, 4)
    with ch.open_store(store) as opened:
        written = [
            (item.codes["image"].tolist(), item.metadata["text"])
            for item in opened.get(["a", "b", "c", "d"])
        ]
    assert written == [([1], "1"), ([2], "two"), ([9], "three"), ([4], "four")]


@pytest.mark.parametrize(("ids", "codes", "model", "says"), [
    ("ab", [[1, 2], [3, 4]], "m", "holds codes of 8 bits, not 16"),
    ("ab", [1, 2], "other", "holds codes of another model"),
    ("ab", [1, 2], "", "does not say which model made its codes"),
    ("aa", [1, 2], "m", "b.parquet: "),
])  # fmt: skip
def test_codes_that_do_not_fit_change_nothing(ids, codes, model, says, tmp_path):
    store = Address.parse(tmp_path / "a.store")
    put_codes(store, save(tmp_path / "a.parquet", "x", [1], "m"), is_new=True)
    check_refusal(says, put_codes, store, save(tmp_path / "b.parquet", list(ids), codes, model))
    with ch.open_store(store) as opened:
        assert opened.ids() == ["x"]


def test_other_files_are_no_files_of_codes(tmp_path):
    needs("parquet")
    from channelhash.codes.parquet import is_code_file

    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"PAR1")
    assert is_code_file(save(tmp_path / "a.parquet", "x", [1]))
    assert not any(map(is_code_file, (broken, tmp_path, tmp_path / "none.parquet")))


# A store whose codes are fitted to its items.


N = MIN_PAIRS + 5


@pytest.fixture(scope="module")
def captioned(tmp_path_factory):
    """A folder of ``N`` images, and tables ``1.csv`` and ``2.csv`` with two captions of each, or of
    every other one.
    """
    folder = write_pictures(tmp_path_factory.mktemp("captioned"), N).parent
    for every in (1, 2):
        lines = ["image,text"]
        for i in range(0, N, every):
            lines += [
                f"{i}.png,a {'red' * (i % 4)} picture {'green' * (i % 3)}",
                f"{i}.png,{'blue ' * (i % 5)}here",
            ]
        (folder / f"{every}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("sample", [10_000, MIN_PAIRS + 1])
def test_items_of_the_sample_have_the_codes_that_encoding_them_gives(
    captioned, tmp_path, monkeypatch, sample
):
    monkeypatch.setattr(fit, "_SAMPLE", sample)
    photos, captions = (
        shutil.copytree(captioned / "images", tmp_path / "images"),
        captioned / "1.csv",
    )
    (photos / "0.png").write_text("no picture")
    source = Source.read(photos, captions=captions)
    done = create_store(Address.parse(tmp_path / "s"), NewCodes(EXTRACTORS, n_bits=16), source)
    assert (done.added, len(done.problems)) == (MIN_PAIRS + 4, 1)
    model = ch.load_model(tmp_path / "s", trust_code=True)
    assert model.architecture["codes"] == "cca-itq"
    again = ch.open_store(tmp_path / "again", 16, model.fingerprint(), stage=Stage(16))
    encode_into(again, model, source)
    expected = {item.id: (item.codes, item.metadata) for item in again.get(again.ids())}
    with closing(ch.open_store(tmp_path / "s")) as made:
        found = {item.id: (item.codes, item.metadata) for item in made.get(made.ids())}
        for item in made.get(made.ids()):  # one pass made both
            signs = {
                modality: ch.codes.pack(made.stage.of(modality).decode(row[None]) >= 0)[0]
                for modality, row in item.projections.items()
            }
            np.testing.assert_equal(signs, item.codes)
    np.testing.assert_equal(found, expected)
    assert (
        ch.index(photos, tmp_path / "s", captions=captions, trust_code=True).indexed.unchanged
        == MIN_PAIRS + 4
    )


@pytest.mark.parametrize(("every", "codes", "fitted", "coded"), [
    (1, "auto", f"cca-itq to {N} pairs of image and text", {"image", "text"}),
    (2, "auto", f"itq to {N} images; no captions join texts to them", {"image"}),
    (2, "cca-itq", f"cca-itq to {MIN_PAIRS // 2 + 3} pairs of image and text", {"image", "text"}),
    (1, "sign", f"sign to {N} images; no captions join texts to them", {"image"}),
])  # fmt: skip
def test_captions_join_two_spaces(captioned, tmp_path, every, codes, fitted, coded):
    captions, settings = (
        captioned / f"{every}.csv",
        {"encoder": EXTRACTORS, "codes": codes, "n_bits": 32},
    )
    index = ch.index(
        captioned / "images", tmp_path / "s", captions=captions, trust_code=True, **settings
    )
    words = f"image={EXTRACTORS['image']} text={EXTRACTORS['text']}"
    assert fit_facts(described_fit(index.store)) == {"encoder": words, "fitted": fitted}
    assert index.store.info()["codes"].get("image") == N
    assert set(index.store.modalities) == coded
    expected = len(range(0, N, every)) if "text" in coded else None
    assert index.store.info()["codes"].get("text") == expected


def test_one_space_is_searched_with_words_without_captions_and_a_store_keeps_to_it(tmp_path):
    needs("clip")
    photos, net = picture_folder(tmp_path / "photos"), tiny_clip(tmp_path / "net.json")
    index = ch.index(photos, tmp_path / "s", encoder=f"openclip:{net}")
    assert fit_facts(described_fit(index.store)) == {
        "encoder": f"openclip:{net}",
        "fitted": "itq to 9 images",
    }
    assert index.store.n_bits == 256
    assert len(index.search("a red picture", k=3)) == 3
    # with the model that the store keeps
    add_to_store(Address.parse(tmp_path / "s"), Source.read(photos))
    ch.index(photos, tmp_path / "s", encoder=f"openclip:{net}").store.close()
    says = r"holds codes of openclip:.*net.json, not of photo; leave the encoder out"
    check_refusal(says, ch.index, photos, tmp_path / "s", encoder="photo")
    ch.index(photos, tmp_path / "other", encoder=f"openclip:{net}", n_bits=24).store.close()
    says = "these codes were made by another model"
    check_refusal(says, ch.index, photos, tmp_path / "s", model=tmp_path / "other")


def test_features_are_an_encoder_of_their_own(tmp_path):
    index = ch.index(write_features(tmp_path / "f.npz"), tmp_path / "s", n_bits=24)
    assert fit_facts(described_fit(index.store))["encoder"] == "features"
    assert [hit.distance for hit in index.search(like=index.store.ids()[0], k=1)] == [0]


def test_commands_make_a_store_and_tell_of_it(tmp_path, capsys):
    needs("clip")
    photos, net = picture_folder(tmp_path / "photos"), tiny_clip(tmp_path / "net.json")
    options = ["--encoder", f"openclip:{net}", "--method", "sign", "--bits", "40", "--seed", "1"]
    assert run_json(capsys, "index", "create", tmp_path / "s", photos, *options)["added"] == 9
    facts = run_json(capsys, "index", "info", tmp_path / "s")
    assert (facts["n_bits"], facts["encoder"], facts["fitted"]) == (
        40,
        f"openclip:{net}",
        "sign to 9 images",
    )
