"""``explain`` in Python and on the command line.

Bits are held against labels by NumPy's correlations. Maps light up exactly where a made encoder
looks, and the fast path gives what hiding one patch after another gives.
"""

import math
from unittest.mock import patch

import numpy as np
import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings, strategies as st
from PIL import Image

import channelhash as ch
from channelhash.codes import CodeSet, hamming_distances, pack
from channelhash.explanation import bits as labelled
from channelhash.explanation.api import Explanation, Side, explain_pair
from channelhash.explanation.bits import (
    Bit,
    BitLabels,
    _bit_label_correlation,
)
from channelhash.explanation.occlusion import (
    MapSettings,
    _hide,
    _make_filler,
    _PatchGrid,
    map_image,
    map_words,
)
from channelhash.models.hash_model import encode_records
from channelhash.search import open_store
from picture_runs import picture_records
from refusals import check_refusal
from serve.served import app_of, small_model, small_store
from small_runs import (
    assert_refused,
    feature_config,
    run_command,
    run_json,
    run_text,
    train_run,
    write_features,
)
from small_stores import EXTRACTORS, picture_folder

FAST = MapSettings(cells=3, patch=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """``store`` with pictures, texts and labels, its model, and ``codes.parquet`` of a run that has
    none.
    """
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
    assert (
        found.distance
        == hamming_distances(model.encode_images([path]), model.encode_texts([text]))[0, 0]
    )
    assert [bit.number for bit in found.bits] == list(range(1, 13))
    assert sum(not bit.agrees for bit in found.bits) == found.distance
    assert [word.word for word in found.words[1]] == text.split()
    assert found.image_maps[0].influence.shape == (3, 4)
    assert found.label_names == ("blue", "green", "red")
    assert not found.remarks


def test_opened_pictures_and_strings_are_the_files_that_they_name(folder):
    path = folder / "images" / "3.png"
    opened = [
        ch.explain(folder / "store", [kind, path], settings=None)
        for kind in (str(path), path, Image.open(path))
    ]
    assert {each.distance for each in opened} == {0}
    assert opened[0].image_maps == (None, None)


def test_an_item_is_explained_by_its_words_and_picture_where_they_are_known(folder):
    found = ch.explain(
        folder / "store", likes=["item004", "item004"], by=["image", "text"], settings=FAST
    )
    model = ch.load_model(folder / "run")
    text = [word.word for word in found.words[1]]
    image = folder / "images" / "4.png"
    assert (
        found.distance
        == hamming_distances(model.encode_images([image]), model.encode_texts([" ".join(text)]))[
            0, 0
        ]
    )
    assert found.image_maps[0] is not None
    assert ch.explain(folder / "store", likes=["item004", "item005"]).sides[1].modality == "image"


def test_what_is_not_known_or_has_changed_is_said(folder, tmp_path):
    model = ch.load_model(folder / "run")
    with open_store(tmp_path / "store", model.n_bits, model.fingerprint()) as store:
        codes = model.encode_texts(["a red picture", "blue"])
        metadata = [{}, {"text": "something else: a bright green picture"}]
        store.add(["bare", "changed"], {"text": codes, "image": codes}, metadata=metadata)
    bare = ch.explain(
        tmp_path / "store", [], [], ["bare", "bare"], ["text", "image"], folder / "run"
    )
    assert (bare.distance, bare.image_maps, bare.words) == (0, (None, None), (None, None))
    assert bare.remarks == tuple(
        f"no map of bare: its {what} not known here" for what in ("words are", "picture is")
    )
    assert bare.bits[0].strengths == (None, None)
    assert "No labels are known" in bare.summary()
    changed = ch.explain(tmp_path / "store", [], ["red"], ["changed"], ["text"], folder / "run")
    assert "differs in" in changed.remarks[0]
    assert changed.words[1] is not None
    without = ch.explain(tmp_path / "store", [], [], ["changed", "bare"], ["text", "text"])
    assert without.remarks[0].endswith("there is no model to encode it with")


def test_the_command_prints_a_table_and_json(folder, capsys):
    pair = (
        "--image",
        folder / "images" / "3.png",
        "--text",
        "a dark red picture",
        "--cells",
        3,
        "--patch",
        1,
    )
    out = run_text(capsys, "explain", folder / "run", *pair)
    assert "of 12 bits agree" in out
    assert all(word in out for word in ("a", "dark", "red", "picture", "agrees", "bits that flip"))
    found = run_json(capsys, "explain", folder / "run", *pair)
    assert found["n_bits"] == len(found["bits"]) == 12
    assert found["distance"] == sum(not bit["agrees"] for bit in found["bits"])
    assert np.array(found["sides"][0]["map"]["influence"]).shape == (3, 4)
    assert [word["word"] for word in found["sides"][1]["words"]] == ["a", "dark", "red", "picture"]
    assert (
        run_json(capsys, "explain", folder / "run", *pair, "--no-maps")["sides"][0]["map"] is None
    )


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
    assert_refused(
        capsys,
        "explain",
        tmp_path / "run",
        *likes[:2],
        "--text",
        "words",
        says="names no extractor",
    )


def test_an_item_is_not_explained_by_a_code_that_it_does_not_have(tmp_path):
    with open_store(tmp_path / "store", 12) as store:
        store.add(["\u00e9", "b"], {"text": np.zeros((2, 2), np.uint8)})
    says = "^like b: has no image code; name one that it has, by text"
    # decomposed
    check_refusal(
        says, ch.explain, tmp_path / "store", likes=["e\u0301", "b"], by=["text", "image"]
    )


@pytest.mark.parametrize(("evidence", "summary"), [
    ((0.004, -0.2), "2 of 2 bits agree, 0 differ. The agreeing bits speak for no label clearly."),
    ((0.006, -0.2), "2 of 2 bits agree, 0 differ. Those that agree speak for: sky (0.01)."),
])  # fmt: skip
def test_a_label_that_would_be_printed_as_nothing_is_not_named(evidence, summary):
    codes = np.ones(2, dtype=np.float32)
    side, clear = Side("text", "a", codes), np.array([evidence, evidence])
    assert (
        Explanation((side, side), Bit.compare(codes, codes), ("sky", "car"), clear).summary()
        == summary
    )


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.sampled_from([7, 30]))
def test_the_correlation_is_numpys_whatever_the_blocks(seed, rows):
    random = np.random.default_rng(seed)
    bits = random.random((int(random.integers(2, 30)), 5)) < 0.4
    labels = random.random((len(bits), 3)) < 0.4
    with patch.object(labelled, "_ROWS", rows):
        found = _bit_label_correlation(pack(bits), 5, labels)
    for j, label in np.ndindex(5, 3):
        if len({*bits[:, j].tolist()}) == 1 or len({*labels[:, label].tolist()}) == 1:
            assert math.isnan(found[j, label])
        else:
            assert found[j, label] == pytest.approx(
                np.corrcoef(bits[:, j], labels[:, label])[0, 1], abs=1e-9
            )


def test_a_meaning_has_to_be_clear_in_both_modalities_with_the_same_sign():
    image = np.array([[0.6, -0.5, 0.4, np.nan], [0.1, 0.9, -0.6, 0.0]])
    text = np.array([[0.3, 0.5, 0.0, 0.7], [0.9, 0.8, -0.3, 0.0]])
    bit_labels = BitLabels(
        ("a", "b", "c", "d"), {"image": image, "text": text}, {"image": 10_000, "text": 10_000}
    )
    np.testing.assert_array_equal(
        bit_labels.clear(("image", "text")), [[0.3, 0, 0, 0], [0, 0.8, -0.3, 0]]
    )
    np.testing.assert_array_equal(bit_labels.clear(("text", "text")), np.nan_to_num(text))


def test_agreeing_bits_speak_for_labels_by_their_values_and_shares():
    first, second = np.array([1.0, -2.0, 0.5], np.float32), np.array([0.5, -1.0, -3.0], np.float32)
    clear = np.array([[0.5, -0.3], [-0.4, 0.2], [0.9, 0.9]])
    bits = Bit.compare(first, second)
    sides = Side("image", "a", first), Side("text", "b", second)
    agreeing = [(j, bit) for j, bit in enumerate(bits) if bit.agrees]
    total = sum(bit.share for _, bit in agreeing)
    expected = sum(
        (1 if bit.values[0] else -1) * bit.share / total * clear[j] for j, bit in agreeing
    )
    np.testing.assert_allclose(Explanation(sides, bits, ("a", "b"), clear).evidence, expected)
    assert expected[0] > 0 > expected[1]
    assert not Explanation(sides, Bit.compare(first, -first), ("a", "b"), clear).evidence.any()


def test_of_a_store_labelled_items_are_counted_and_of_a_run_and_a_file_all(tmp_path):
    random, n, k = np.random.default_rng(0), 400, 11
    bits, labels = random.random((n, k)) < 0.4, random.random((n, 4)) < (0.3, 0.1, 0.5, 0.02)
    bits[:, 2] = True
    both = {"image": pack(bits), "text": pack(bits[:, ::-1])}
    codes = CodeSet([str(i) for i in range(n)], both, labels, k, tuple("abcd"), model="a model")
    run = tmp_path / "run"
    (run / "codes").mkdir(parents=True)
    (run / "config.yaml").write_text("data:\nmodel:\nloss:\ntrain:\n")  # which makes it a run
    for path in (run / "codes" / "test-retrieval.parquet", tmp_path / "codes.parquet"):
        codes.save(path)
    whole = {
        name: _bit_label_correlation(packed, k, codes.labels)
        for name, packed in codes.codes.items()
    }
    for place in ("codes.parquet", "run"):
        found = BitLabels.load(open_store(tmp_path / place))
        np.testing.assert_array_equal(found.correlations["image"], whole["image"])
    store = open_store(tmp_path / "store", k)
    store.add(
        list(codes.ids), codes.codes, metadata=[{"labels": codes.names_of(i)} for i in range(n)]
    )
    store.add(["unlabelled"], codes.codes["image"][:1], "image", [{"year": 1}])
    counted = BitLabels.load(store)
    assert counted.rows == {"image": n, "text": n}
    np.testing.assert_allclose(counted.correlations["text"], whole["text"])


@pytest.mark.parametrize("seed", range(3))
def test_strengths_and_shares_are_what_they_say(seed):
    first, second = np.random.default_rng(seed).normal(size=(2, 13)).astype(np.float32)
    size = {
        0: math.sqrt(sum(float(x) ** 2 for x in first) / 13),
        1: math.sqrt(sum(float(x) ** 2 for x in second) / 13),
    }
    for j, bit in enumerate(Bit.compare(first, second)):
        signs = first[j] >= 0, second[j] >= 0
        assert (bit.number, bit.values, bit.agrees) == (j + 1, signs, signs[0] == signs[1])
        assert bit.strengths == pytest.approx((abs(first[j]) / size[0], abs(second[j]) / size[1]))
        assert bit.share == pytest.approx(
            float(first[j]) * float(second[j]) / (13 * size[0] * size[1])
        )
        assert (bit.share > 0) == bit.agrees


def test_of_bare_bits_each_counts_the_same_and_none_has_a_strength():
    first = np.array([1, -1, 1, 1], dtype=np.float32)
    second = np.array([0.1, -2, -0.3, 0.4], dtype=np.float32)
    bits = Bit.compare(first, second, (False, True))
    assert [bit.strengths[0] for bit in bits] == [None] * 4
    assert all(bit.strengths[1] is not None for bit in bits)
    assert {abs(bit.share) for bit in Bit.compare(first, -first, (False, False))} == {0.25}
    # outputs without direction
    nowhere = Bit.compare(np.zeros(3, np.float32), np.ones(3, np.float32))
    assert [(bit.share, bit.strengths[0], bit.agrees) for bit in nowhere] == [(0.0, 0.0, True)] * 3


WORDS = ("red", "green", "blue", "dark")


def encode_words(texts):
    """``(n, 4)``: +1 where a word is there, −1 where not."""
    return np.array(
        [[1.0 if word in text.split() else -1.0 for word in WORDS] for text in texts],
        dtype=np.float32,
    )


def encode_pictures(pictures):
    """``(n, 4)``: the outputs of "blue" where the lower left quadrant is bright, −1 where it is
    dark.
    """
    bright = np.array([np.asarray(each)[24:, :24].mean() > 160 for each in pictures])
    return np.where(bright[:, None], encode_words(["blue"]), np.float32(-1))


def test_a_pair_explains_itself_exactly_with_its_quadrant_and_its_word():
    pixels = np.zeros((48, 48, 3), dtype=np.uint8)
    pixels[24:, :24] = 255
    image = Side.encode("image", Image.fromarray(pixels), encode_pictures)
    text = Side.encode("text", "the blue one", encode_words)
    found = explain_pair(
        (image, text), None, {"image": encode_pictures, "text": encode_words}, MapSettings(cells=4)
    )
    assert (found.distance, found.relaxed_distance) == (0, pytest.approx(0))
    assert [(word.word, word.flips) for word in found.words[1]] == [
        ("the", ()),
        ("blue", (3,)),
        ("one", ()),
    ]
    assert [word.influence for word in found.words[1]] == pytest.approx([0, 1, 0])
    # A 2 × 2 patch fills a quadrant's 2 × 2 cells; only one that hides it whole makes its mean fall
    # below 160.
    quadrant = np.zeros((4, 4))
    quadrant[2:, :2] = 1
    for values in (found.image_maps[0].influence, found.image_maps[0].flips):
        np.testing.assert_array_equal(np.sign(values), quadrant)
    assert (found.image_maps[1], found.words[0]) == (None, None)


@pytest.mark.parametrize("fill", ["grey", "blur"])
def test_a_map_is_hiding_one_patch_after_another(fill):
    random = np.random.default_rng(0)
    picture = Image.fromarray(random.integers(0, 256, (48, 64, 3), dtype=np.uint8))
    weights, other = random.normal(size=(48 * 64 * 3, 9)), random.normal(size=9).astype(np.float32)

    def encode(pictures):
        return np.stack(
            [(np.asarray(each).ravel() / 255 - 0.5) @ weights for each in pictures]
        ).astype(np.float32)

    def relaxed(outputs):  # equation (2) of the paper
        return 9 / 2 * (1 - outputs @ other / np.linalg.norm(outputs) / np.linalg.norm(other))

    grid = _PatchGrid(6, 8, 3)
    influence, flips, count = np.zeros((3, 6, 8))
    filler, whole = _make_filler(picture, fill), encode([picture])[0]
    patches = []  # the change of each, and the bits that flip
    for top, left in np.ndindex(4, 6):
        pixels, patch = (
            np.asarray(picture).copy(),
            np.s_[8 * top : 8 * top + 24, 8 * left : 8 * left + 24],
        )
        pixels[patch] = np.asarray(filler)[patch]
        hidden, cells = encode([Image.fromarray(pixels)])[0], np.s_[top : top + 3, left : left + 3]
        patches.append((relaxed(hidden) - relaxed(whole), (hidden >= 0) != (whole >= 0)))
        influence[cells] += patches[-1][0]
        flips[cells] += patches[-1][1].sum()
        count[cells] += 1
    found = map_image(picture, grid, encode, other, fill)
    np.testing.assert_allclose(found.influence, influence / count, atol=1e-5)
    np.testing.assert_allclose(found.flips, flips / count)
    np.testing.assert_allclose(found.flipping, np.mean([bits for _, bits in patches], axis=0))
    _, strongest = max(patches, key=lambda pair: abs(pair[0]))
    assert found.strongest == tuple(np.flatnonzero(strongest) + 1) != ()


def test_the_cells_cover_a_picture_whatever_its_size():
    for size in [(64, 64), (640, 480), (101, 37), (37, 101), (9, 300)]:
        grid = MapSettings(8, 1).grid(size)
        assert min(grid.rows, grid.columns) == 8
        seen = np.zeros((size[1], size[0]), dtype=int)
        for row, column in np.ndindex(grid.rows, grid.columns):
            left, top, right, bottom = grid.box((row, column), size)
            seen[top:bottom, left:right] += 1
        assert (seen == 1).all()
        image = Image.new("RGB", size)
        hidden = _hide(image, (0, 0, *size), _make_filler(image, "grey"))
        assert hidden.getcolors() == [(size[0] * size[1], (128,) * 3)]


def test_words_are_left_out_one_at_a_time_and_only_the_first_ones():
    seen = []
    for most in (10, 1):
        map_words(
            "a b a", lambda texts: seen.append(texts) or encode_words(texts), np.ones(4), most
        )
    assert seen == [["a b a", "b a", "a a", "a b"], ["a b a", "b a"]]
    assert map_words("  ", encode_words, np.ones(4), 10) == []


@pytest.fixture
def fitted(tmp_path):
    """A store whose items keep vectors beside their codes, as fitted codes of one space do."""
    picture_folder(tmp_path / "photos")
    encoder = {"image": EXTRACTORS["image"]}
    index = ch.index(
        tmp_path / "photos", tmp_path / "s", encoder=encoder, n_bits=16, trust_code=True
    )
    assert index.store.stage.n_outputs > 16
    index.store.close()
    return tmp_path / "s"


def test_fitted_codes_are_explained_bit_by_bit(fitted):
    pair = {"images": [fitted.parent / "photos" / "4.png"], "likes": ["2.png"]}
    found = ch.explain(fitted, **pair, settings=MapSettings(cells=2), trust_code=True)
    with open_store(fitted) as store:
        first, second = (item.codes["image"] for item in store.get(["4.png", "2.png"]))
    assert len(found.bits) == 16
    assert found.distance == hamming_distances(first[None], second[None])[0, 0]
    assert [side.problem for side in found.sides] == ["", ""]
    assert found.image_maps[0] is not None


def test_a_server_explains_fitted_codes_bit_by_bit(fitted):
    model = ch.load_model(fitted, trust_code=True)
    with open_store(fitted) as store, TestClient(app_of(store, model)) as client:
        pair = {"first": {"id": "4.png"}, "second": {"id": "2.png"}, "cells": 2, "patch": 1}
        answer = client.post("/explain", json=pair)
        assert answer.status_code == 200, answer.text
        assert len(answer.json()["bits"]) == 16
