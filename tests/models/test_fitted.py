"""Fitted codes: the closed forms inside a model, and which of them is chosen."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from channelhash.codes import binarize, hamming_distances, pack
from channelhash.errors import InputError
from channelhash.models import fitted, load_model
from channelhash.models.encoders import open_encoder
from channelhash.models.fitted import MIN_PAIRS, cca_itq, fit_codes, pca_itq, random_rotation
from channelhash.models.hash_model import HashModel
from picture_runs import tiny_clip


def views(n=150, seed=0, widths=(("image", 12), ("text", 9))):
    """Two modalities of a common signal of four dimensions, with noise."""
    random = np.random.default_rng(seed)
    signal = random.normal(size=(n, 4))
    mixed = {name: signal @ np.random.default_rng(d).normal(size=(4, d)) for name, d in widths}
    return {name: (v + 0.2 * random.normal(size=v.shape) + 3).astype(np.float32) for name, v in mixed.items()}


def fit(features, *args, **settings):
    return fit_codes(
        open_encoder("features", {n: v.shape[1] for n, v in features.items()}), features, *args, **settings
    )


@pytest.mark.parametrize(("codes", "method"), [("sign", random_rotation), ("itq", pca_itq)])
@pytest.mark.parametrize("k", [8, 64])
def test_one_modality_is_the_closed_form(codes, method, k):
    features = {"image": views()["image"]}
    model = fit(features, k, codes, seed=3)
    expected = method(features["image"], k, 3, "image")(features["image"])
    np.testing.assert_allclose(model.outputs("image", features["image"]), expected, atol=1e-4)
    assert model.architecture["codes"] == codes


def test_pairs_of_different_spaces_become_one():
    features, new = views(), views(50, seed=1)
    model = fit(features, 16)
    assert (model.architecture["codes"], model.modalities) == ("cca-itq", ("image", "text"))
    maps = cca_itq(features, 16, 0, rho=3 * 21 / 150)
    for name in features:
        np.testing.assert_allclose(model.outputs(name, new[name]), maps[name](new[name]), atol=1e-4)
    distances = hamming_distances(model.encode("text", new["text"]), model.encode("image", new["image"]))
    own = np.diagonal(distances).mean()
    assert own < distances.mean() / 2, "a text lies nearer to its own image than to others"


@pytest.mark.parametrize(
    ("n", "modalities", "chosen"),
    [
        (MIN_PAIRS, ("image", "text"), "cca-itq"),
        (MIN_PAIRS - 1, ("image", "text"), "itq"),
        (2, ("image",), "itq"),
        (1, ("image",), "sign"),
    ],
)
def test_auto_chooses_by_what_there_is(n, modalities, chosen):
    model = fit({name: values for name, values in views(n).items() if name in modalities}, 8)
    assert model.architecture["codes"] == chosen
    assert model.modalities == (modalities if chosen == "cca-itq" else ("image",))


def test_one_space_shares_a_map_around_each_mean(tmp_path):
    encoder = open_encoder(f"openclip:{tiny_clip(tmp_path / 'net.json')}")
    features = views(200, widths=(("image", 24), ("text", 24)))
    model = fit_codes(encoder, features, 8)
    assert model.architecture["codes"] == "itq"
    image, text = (model.branch(name).head for name in ("image", "text"))
    assert np.array_equal(image[2].weight.detach(), text[2].weight.detach())
    for name, head in (("image", image), ("text", text)):
        unit = features[name] / np.linalg.norm(features[name], axis=1, keepdims=True)
        np.testing.assert_allclose(head[1].mean, unit.mean(axis=0), atol=1e-6)
    assert model.encode_texts(["a dog"]).shape == (1, 1)


def test_one_space_without_texts_centres_them_on_phrases(tmp_path):
    encoder = open_encoder(f"openclip:{tiny_clip(tmp_path / 'net.json')}")
    model = fit_codes(encoder, {"image": views(widths=(("image", 24),))["image"]}, 8)
    assert model.modalities == ("image", "text")
    outputs = model.outputs("text", fitted.PHRASES).numpy()
    np.testing.assert_allclose(outputs.mean(axis=0), 0, atol=1e-5)
    model.save_pretrained(tmp_path / "model")
    again = HashModel.from_pretrained(tmp_path / "model")
    assert again.fingerprint() == model.fingerprint()
    np.testing.assert_array_equal(again.outputs("text", ["a dog"]), model.outputs("text", ["a dog"]))


@given(st.integers(1, 40), st.integers(1, 10), st.integers(0, 3))
@settings(max_examples=25)
def test_a_tight_frame_keeps_lengths(n_bits, d, seed):
    rows = np.random.default_rng(seed).normal(size=(7, d))
    found = random_rotation(rows, n_bits, seed, "image")
    gram = found.weights @ found.weights.T if n_bits >= d else found.weights.T @ found.weights
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-9)
    if n_bits >= d:
        np.testing.assert_allclose(np.linalg.norm(found(rows), axis=1), np.linalg.norm(rows - rows.mean(0), axis=1))


def test_codes_are_a_function_of_the_seed():
    features = {"image": views()["image"]}
    same, again, other = (fit(features, 32, seed=seed).fingerprint() for seed in (0, 0, 1))
    assert same == again != other


def test_more_bits_than_features_use_all_bits():
    rows = views()["image"]
    bits = binarize(fit({"image": rows}, 64).outputs("image", rows))
    assert pack(bits).shape == (150, 8)
    assert (bits.mean(axis=0) > 0).all()
    assert (bits.mean(axis=0) < 1).all()


@pytest.mark.parametrize(
    ("features", "settings", "message"),
    [
        ({"image": np.ones((5, 2), np.float32)}, {"codes": "cca-itq"}, "needs images with captions"),
        ({"image": np.ones((5, 2), np.float32)}, {"n_bits": 0}, "--bits 0: a code has at least 1 bit"),
        ({"image": np.ones((0, 2), np.float32)}, {}, "no item to fit codes to"),
    ],
)
def test_bad_input_is_one_line(features, settings, message):
    with pytest.raises(InputError, match=message):
        fit(features, **settings)


@pytest.fixture(scope="module")
def photo():
    return open_encoder("photo")


@pytest.mark.parametrize("n_bits", [64, 256])
def test_learned_codes_are_signs_of_the_leading_features(photo, tmp_path, n_bits):
    pictures = [Image.new("RGB", (90, 60), color) for color in ("red", "blue")]
    features = photo.features("image", pictures)
    made = fit_codes(photo, {"image": features}, n_bits)
    assert (made.architecture["codes"], made.modalities) == ("learned", ("image", "text"))
    made.save_pretrained(tmp_path)
    model = load_model(tmp_path)
    assert model.fingerprint() == made.fingerprint()
    np.testing.assert_allclose(model.outputs("image", pictures), features[:, :n_bits], atol=1e-5)
    texts = ["a bright red wall", "the clear blue sky"]
    np.testing.assert_allclose(model.outputs("text", texts), photo.features("text", texts)[:, :n_bits], atol=1e-5)
    distances = hamming_distances(model.encode("text", texts), model.encode("image", pictures))
    assert distances.argmin(axis=1).tolist() == [0, 1]


def test_longer_codes_of_an_encoder_are_fitted(photo):
    features = {"image": np.random.default_rng(0).normal(size=(5, 256)).astype(np.float32)}
    assert fit_codes(photo, features, 300).architecture["codes"] == "itq"
    with pytest.raises(
        InputError, match="--codes learned: the encoder photo has 256 bits of its own, not 300; take itq"
    ):
        fit_codes(photo, features, 300, "learned")
    with pytest.raises(InputError, match="--codes learned: the encoder features has no codes of its own"):
        fit(features, 16, "learned")
