"""``explain`` from a run, a store and a file: in Python, on the command line, as JSON and as a picture."""

import numpy as np
import pytest
from PIL import Image

import channelhash as ch
from channelhash.codes import hamming_distances
from channelhash.explanation.api import Bit, Explanation, Side
from channelhash.explanation.occlusion import MapSettings
from channelhash.models.hash_model import encode_records
from channelhash.search import open_store
from picture_runs import picture_records
from refusals import check_refusal
from serve.served import small_model, small_store
from small_runs import assert_refused, feature_config, run_command, run_json, run_text, train_run, write_features

FAST = MapSettings(cells=3, patch=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``store`` with pictures, texts and labels, its model, and ``codes.parquet`` of a run that has none."""
    folder = tmp_path_factory.mktemp("explained")
    model, run = small_model(folder), folder / "run"
    small_store(folder, model).close()
    for place in (folder / "store", run):
        model.save_pretrained(place / "model")
    (run / "config.yaml").write_text("data:\nmodel:\nloss:\ntrain:\n")
    whole = encode_records(model, picture_records(folder, 30))
    (run / "codes").mkdir()
    whole.save(run / "codes" / "test-retrieval.parquet")
    whole.take(range(12)).save(run / "codes" / "test-query.parquet")
    return folder


def test_a_picture_and_words_are_explained_by_the_codes_that_a_search_compares(folder):
    path, text = folder / "images" / "3.png", "a dark red picture"
    found = ch.explain(folder / "run", [path], [text], settings=FAST)
    model = ch.load_model(folder / "run")
    assert found.distance == hamming_distances(model.encode_images([path]), model.encode_texts([text]))[0, 0]
    assert [bit.number for bit in found.bits] == list(range(1, 13))
    assert sum(not bit.agrees for bit in found.bits) == found.distance
    assert [word.word for word in found.words[1]] == text.split()
    assert found.image_maps[0].influence.shape == (3, 4)
    assert found.label_names == ("blue", "green", "red")
    assert not found.remarks


def test_opened_pictures_and_strings_are_the_files_that_they_name(folder):
    path = folder / "images" / "3.png"
    opened = [ch.explain(folder / "store", [kind, path], settings=None) for kind in (str(path), path, Image.open(path))]
    assert {each.distance for each in opened} == {0}
    assert opened[0].image_maps == (None, None)


def test_an_item_is_explained_by_its_words_and_picture_where_they_are_known(folder):
    found = ch.explain(folder / "store", likes=["item004", "item004"], by=["image", "text"], settings=FAST)
    model = ch.load_model(folder / "run")
    text = [word.word for word in found.words[1]]
    image = folder / "images" / "4.png"
    assert found.distance == hamming_distances(model.encode_images([image]), model.encode_texts([" ".join(text)]))[0, 0]
    assert found.image_maps[0] is not None
    assert ch.explain(folder / "store", likes=["item004", "item005"]).sides[1].modality == "image"


def test_what_is_not_known_or_has_changed_is_said(folder, tmp_path):
    model = ch.load_model(folder / "run")
    with open_store(tmp_path / "store", model.n_bits, model.fingerprint()) as store:
        codes = model.encode_texts(["a red picture", "blue"])
        metadata = [{}, {"text": "something else: a bright green picture"}]
        store.add(["bare", "changed"], {"text": codes, "image": codes}, metadata=metadata)
    bare = ch.explain(tmp_path / "store", [], [], ["bare", "bare"], ["text", "image"], folder / "run")
    assert (bare.distance, bare.image_maps, bare.words) == (0, (None, None), (None, None))
    assert bare.remarks == tuple(f"no map of bare: its {what} not known here" for what in ("words are", "picture is"))
    assert bare.bits[0].strengths == (None, None)
    assert "No labels are known" in bare.summary()
    changed = ch.explain(tmp_path / "store", [], ["red"], ["changed"], ["text"], folder / "run")
    assert "differs in" in changed.remarks[0]
    assert changed.words[1] is not None
    without = ch.explain(tmp_path / "store", [], [], ["changed", "bare"], ["text", "text"])
    assert without.remarks[0].endswith("there is no model to encode it with")


def test_only_so_many_words_and_patches_are_looked_at(folder):
    path = folder / "images" / "3.png"
    few = MapSettings(3, 1, max_words=2, max_positions=11)
    found = ch.explain(folder / "store", [path], ["red " * 5], settings=few)
    assert [word.word for word in found.words[1]] == ["red", "red"]
    assert found.image_maps[0] is None
    assert "12 patches" in found.remarks[0]
    assert "first 2 words" in found.remarks[1]


def test_the_command_prints_a_table_and_json(folder, capsys):
    pair = ("--image", folder / "images" / "3.png", "--text", "a dark red picture", "--cells", 3, "--patch", 1)
    out = run_text(capsys, "explain", folder / "run", *pair)
    assert "of 12 bits agree" in out
    assert all(word in out for word in ("a", "dark", "red", "picture", "agrees", "bits that flip"))
    found = run_json(capsys, "explain", folder / "run", *pair)
    assert found["n_bits"] == len(found["bits"]) == 12
    assert found["distance"] == sum(not bit["agrees"] for bit in found["bits"])
    assert np.array(found["sides"][0]["map"]["influence"]).shape == (3, 4)
    assert [word["word"] for word in found["sides"][1]["words"]] == ["a", "dark", "red", "picture"]
    assert run_json(capsys, "explain", folder / "run", *pair, "--no-maps")["sides"][0]["map"] is None


@pytest.mark.parametrize(("arguments", "says"), [
    (("--text", "red"), "two of --image, --text and --like, not 1"),
    (("--text", "a", "--text", "b", "--like", "c"), "not 3"),
    (("--text", "red", "--text", " "), "is empty"),
    (("--text", "red", "--image", "nowhere.png"), "nowhere.png: no such picture"),
    (("--text", "red", "--like", "nobody"), "no item with this id"),
    (("--text", "red", "--text", "blue", "--by", "text"), "--by"),
    (("--text", "red", "--text", "blue", "--patch", "9"), "patch: a side of 9"),
    (("--text", "red", "--text", "blue", "--cells", "0"), "give 1 to 64"),
    (("--text", "red", "--text", "blue", "--cells", "65"), "65 along the short"),
])  # fmt: skip
def test_what_cannot_be_explained_is_refused_in_a_line(folder, capsys, arguments, says):
    assert_refused(capsys, "explain", folder / "store", *arguments, says=says)


def test_a_model_of_features_has_bits_and_meanings_and_says_why_no_maps(tmp_path, capsys):
    train_run(feature_config(tmp_path / "config.json", write_features(tmp_path / "f.npz")))
    assert run_command("evaluate", tmp_path / "run") == 0
    ids = open_store(tmp_path / "run").ids()[:2]
    likes = ("--like", ids[0], "--like", ids[1], "--by", "image", "--by", "text")
    found = run_json(capsys, "explain", tmp_path / "run", *likes)
    assert len(found["remarks"]) == 2
    assert any(bit["meaning"] for bit in found["bits"])
    assert_refused(capsys, "explain", tmp_path / "run", *likes[:2], "--text", "words", says="names no extractor")


def test_an_item_is_not_explained_by_a_code_that_it_does_not_have(tmp_path):
    with open_store(tmp_path / "store", 12) as store:
        store.add(["\u00e9", "b"], {"text": np.zeros((2, 2), np.uint8)})
    says = "--like b: has no image code; name one that it has, --by text"
    check_refusal(says, ch.explain, tmp_path / "store", likes=["e\u0301", "b"], by=["text", "image"])  # decomposed


@pytest.mark.parametrize(("evidence", "summary"), [
    ((0.004, -0.2), "2 of 2 bits agree, 0 differ. The agreeing bits speak for no label clearly."),
    ((0.006, -0.2), "2 of 2 bits agree, 0 differ. Those that agree speak for: sky (0.01)."),
])  # fmt: skip
def test_a_label_that_would_be_printed_as_nothing_is_not_named(evidence, summary):
    codes = np.ones(2, dtype=np.float32)
    side, clear = Side("text", "a", codes), np.array([evidence, evidence])
    assert Explanation((side, side), Bit.compare(codes, codes), ("sky", "car"), clear).summary() == summary
