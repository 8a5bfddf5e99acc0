"""A store whose codes are fitted to its items."""

import shutil
from contextlib import closing

import numpy as np
import pytest
from PIL import Image

import channelhash as ch
from channelhash.models.description import fit_facts
from channelhash.models.fitted import MIN_PAIRS
from channelhash.photos import stores
from channelhash.photos.source import Source
from channelhash.photos.stores import NewCodes, add_to_store, create_store
from channelhash.search.match import described_fit
from picture_runs import tiny_clip, write_pictures
from refusals import check_refusal
from small_runs import assert_refused, run_json, write_features
from small_stores import encode_into, picture_folder


def lengths(texts):
    """An extractor: four numbers of a text."""
    return np.array([[len(text), text.count("a"), text.count("r"), text.count(" ")] for text in texts], dtype=float)


def colours(images):
    """An extractor: mean and spread of an image's colours."""
    pixels = [np.asarray(Image.open(image).convert("RGB"), dtype=float).reshape(-1, 3) for image in images]
    return np.stack([np.concatenate([values.mean(axis=0), values.std(axis=0)]) for values in pixels])


EXTRACTORS = {"image": f"python:{__name__}:colours", "text": f"python:{__name__}:lengths"}
N = MIN_PAIRS + 5


@pytest.fixture(scope="module")
def captioned(tmp_path_factory):
    """A folder of ``N`` images, and tables ``1.csv`` and ``2.csv`` with two captions of each, or of every other one."""
    folder = write_pictures(tmp_path_factory.mktemp("captioned"), N).parent
    for every in (1, 2):
        lines = ["image,text"]
        for i in range(0, N, every):
            lines += [f"{i}.png,a {'red' * (i % 4)} picture {i}", f"{i}.png,{'car ' * (i % 5)}here"]
        (folder / f"{every}.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("sample", [10_000, MIN_PAIRS + 1])
def test_items_of_the_sample_have_the_codes_that_encoding_them_gives(captioned, tmp_path, monkeypatch, sample):
    monkeypatch.setattr(stores, "_SAMPLE", sample)
    photos, captions = shutil.copytree(captioned / "images", tmp_path / "images"), captioned / "1.csv"
    (photos / "0.png").write_text("no picture")
    source = Source.read(photos, captions=captions)
    done = create_store(str(tmp_path / "s"), NewCodes(EXTRACTORS, n_bits=16), source)
    assert (done.added, len(done.problems)) == (MIN_PAIRS + 4, 1)
    model = ch.load_model(tmp_path / "s", trust_code=True)
    assert model.architecture["codes"] == "cca-itq"
    again = ch.open_store(tmp_path / "again", 16, model.fingerprint(), projections=True)
    encode_into(again, model, source)
    expected = {item.id: (item.codes, item.metadata) for item in again.get(again.ids())}
    with closing(ch.open_store(tmp_path / "s")) as made:
        found = {item.id: (item.codes, item.metadata) for item in made.get(made.ids())}
        for item in made.get(made.ids()):  # one pass made both
            signs = {modality: ch.codes.pack(row[None] >= 0)[0].tolist() for modality, row in item.projections.items()}
            assert signs == {modality: code.tolist() for modality, code in item.codes.items()}
    assert found.keys() == expected.keys()
    for name, (codes, metadata) in found.items():
        assert metadata == expected[name][1]
        plain = [{modality: code.tolist() for modality, code in each.items()} for each in (codes, expected[name][0])]
        assert plain[0] == plain[1]
    assert ch.index(photos, tmp_path / "s", captions=captions, trust_code=True).indexed.unchanged == MIN_PAIRS + 4


@pytest.mark.parametrize(("every", "codes", "fitted", "coded"), [
    (1, "auto", f"cca-itq to {N} pairs of image and text", {"image", "text"}),
    (2, "auto", f"itq to {N} images; no captions join texts to them", {"image"}),
    (2, "cca-itq", f"cca-itq to {MIN_PAIRS // 2 + 3} pairs of image and text", {"image", "text"}),
    (1, "sign", f"sign to {N} images; no captions join texts to them", {"image"}),
])  # fmt: skip
def test_captions_join_two_spaces(captioned, tmp_path, every, codes, fitted, coded):
    captions, settings = captioned / f"{every}.csv", {"encoder": EXTRACTORS, "codes": codes, "bits": 32}
    index = ch.index(captioned / "images", tmp_path / "s", captions=captions, trust_code=True, **settings)
    words = f"image={EXTRACTORS['image']} text={EXTRACTORS['text']}"
    assert fit_facts(described_fit(index.store)) == {"encoder": words, "fitted": fitted}
    assert index.store.info()["codes"].get("image") == N
    assert set(index.store.modalities) == coded
    expected = len(range(0, N, every)) if "text" in coded else None
    assert index.store.info()["codes"].get("text") == expected


def test_one_space_is_searched_with_words_without_captions(tmp_path):
    net = tiny_clip(tmp_path / "net.json")
    index = ch.index(picture_folder(tmp_path / "photos"), tmp_path / "s", encoder=f"openclip:{net}")
    assert fit_facts(described_fit(index.store)) == {"encoder": f"openclip:{net}", "fitted": "itq to 9 images"}
    assert index.store.n_bits == 256
    assert len(index.search("a red picture", k=3)) == 3
    add_to_store(str(tmp_path / "s"), Source.read(tmp_path / "photos"))  # with the model that the store keeps


def test_features_are_an_encoder_of_their_own(tmp_path):
    index = ch.index(write_features(tmp_path / "f.npz"), tmp_path / "s", bits=24)
    assert fit_facts(described_fit(index.store))["encoder"] == "features"
    assert [hit.distance for hit in index.search(like=index.store.ids()[0], k=1)] == [0]


def test_a_store_keeps_to_its_encoder(tmp_path):
    photos = picture_folder(tmp_path / "photos")
    net = tiny_clip(tmp_path / "net.json")
    ch.index(photos, tmp_path / "s", encoder=f"openclip:{net}", bits=16).store.close()
    ch.index(photos, tmp_path / "s", encoder=f"openclip:{net}").store.close()
    says = r"holds codes of openclip:.*net.json, not of photo; leave the encoder out"
    check_refusal(says, ch.index, photos, tmp_path / "s", encoder="photo")
    ch.index(photos, tmp_path / "other", encoder=f"openclip:{net}", bits=24).store.close()
    says = "these codes were made by another model"
    check_refusal(says, ch.index, photos, tmp_path / "s", model=tmp_path / "other")


def test_commands_make_a_store_and_tell_of_it(tmp_path, capsys):
    photos, net = picture_folder(tmp_path / "photos"), tiny_clip(tmp_path / "net.json")
    options = ["--encoder", f"openclip:{net}", "--codes", "sign", "--bits", "40", "--seed", "1"]
    assert run_json(capsys, "index", "create", tmp_path / "s", photos, *options)["added"] == 9
    facts = run_json(capsys, "index", "info", tmp_path / "s")
    assert (facts["n_bits"], facts["encoder"], facts["fitted"]) == (40, f"openclip:{net}", "sign to 9 images")


@pytest.mark.parametrize(("arguments", "message"), [
    (["s", "photos", "--model", "run", "--encoder", "photo"], "--model: names a run, and --encoder another"),
    (["s", "photos", "--encoder", "run", "--bits", "64"], "--encoder run: a run has its own codes"),
    (["s", "--encoder", "photo"], "s: codes are fitted to items; name their SOURCE"),
    (["s", "f.npz", "--encoder", "photo"], "the items are features"),
    (["s", "photos", "--encoder", "features"], "--encoder features: the items are images or texts"),
    (["s", "photos", "--encoder", "openclip:net.json", "--codes", "cca-itq"], "--codes cca-itq: needs images with"),
    (["milvus+http://nowhere", "photos", "--encoder", "photo"], "keeps no model"),
])  # fmt: skip
def test_bad_input_is_one_line(tmp_path, monkeypatch, capsys, arguments, message):
    monkeypatch.chdir(tmp_path)
    picture_folder(tmp_path / "photos", 3)
    tiny_clip(tmp_path / "net.json")
    write_features(tmp_path / "f.npz")
    assert_refused(capsys, "index", "create", *arguments, says=message)
    assert not (tmp_path / "s").exists()
