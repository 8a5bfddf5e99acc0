"""Fitted codes: the closed forms inside a model, and which of them is chosen."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image
from scipy.linalg import orthogonal_procrustes

from channelhash.codes import binarize, hamming_distances
from channelhash.models import fitted, load_model
from channelhash.models.encoders import open_encoder
from channelhash.models.fitted import MIN_PAIRS, fit_codes
from channelhash.models.linear_maps import (
    _cca,
    _itq_rotation,
    cca_itq,
    pca_itq,
    random_rotation,
)
from channelhash.models.photo import CAPTIONS, read_bank
from picture_runs import tiny_clip
from refusals import check_refusal


def views(n=150, seed=0, widths=(("image", 12), ("text", 9))):
    """Two modalities of a common signal of four dimensions, with noise."""
    random = np.random.default_rng(seed)
    signal = random.normal(size=(n, 4))
    mixed = {name: signal @ np.random.default_rng(d).normal(size=(4, d)) for name, d in widths}
    return {name: v + 0.2 * random.normal(size=v.shape) + 3 for name, v in mixed.items()}


def fit(features, *args, **settings):
    features = {name: values.astype(np.float32) for name, values in features.items()}
    encoder = open_encoder("features", {name: values.shape[1] for name, values in features.items()})
    return fit_codes(encoder, features, *args, **settings)


@pytest.mark.parametrize(("codes", "method"), [("sign", random_rotation), ("itq", pca_itq)])
@pytest.mark.parametrize("k", [8, 64])
def test_one_modality_is_the_closed_form(codes, method, k):
    features = {"image": views()["image"]}
    model = fit(features, k, codes, seed=3)
    units = features["image"] / np.linalg.norm(features["image"], axis=1, keepdims=True)
    expected = method(units, k, 3, "image")(units)
    outputs = model.outputs("image", features["image"])
    np.testing.assert_allclose(outputs[:, :k], expected, atol=1e-4)
    np.testing.assert_allclose(outputs[:, k:], units, atol=1e-4)
    assert model.stage.n_outputs == outputs.shape[1]
    assert model.architecture["codes"] == codes
    shares = binarize(outputs[:, :k]).mean(axis=0)
    assert ((shares > 0) & (shares < 1)).all(), "all bits are used, of more bits than features too"


def test_pairs_of_different_spaces_become_one():
    features, new = views(), views(50, seed=1)
    model = fit(features, 16)
    assert (model.architecture["codes"], model.modalities) == ("cca-itq", ("image", "text"))
    maps = cca_itq(features, 16, 0, rho=3 * 21 / 150)
    assert model.stage.n_outputs == 16  # of different spaces only the outputs can be compared
    for name in features:
        np.testing.assert_allclose(model.outputs(name, new[name]), maps[name](new[name]), atol=1e-4)
    distances = hamming_distances(
        model.encode("text", new["text"]), model.encode("image", new["image"])
    )
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


def test_one_space_shares_a_map_around_each_mean_and_centres_missing_texts_on_phrases(tmp_path):
    encoder = open_encoder(f"openclip:{tiny_clip(tmp_path / 'net.json')}")
    features = views(200, widths=(("image", 24), ("text", 24)))
    model = fit_codes(encoder, features, 8)
    assert model.architecture["codes"] == "itq"
    assert np.array_equal(model.maps["image"].weights, model.maps["text"].weights)
    for name, fitted_map in model.maps.items():
        unit = features[name] / np.linalg.norm(features[name], axis=1, keepdims=True)
        np.testing.assert_allclose(fitted_map.mean, unit.mean(axis=0), atol=1e-6)
    assert model.encode_texts(["a dog"]).shape == (1, 1)
    model = fit_codes(encoder, {"image": views(widths=(("image", 24),))["image"]}, 8)
    assert model.modalities == ("image", "text")
    outputs = model.outputs("text", fitted._PHRASES.read_text().splitlines())
    np.testing.assert_allclose(outputs[:, :8].mean(axis=0), 0, atol=1e-5)
    model.save_pretrained(tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.fingerprint() == model.fingerprint()
    assert again.stage.fingerprint == model.stage.fingerprint
    assert {*again.stage.quantizers} == {"image", "text"}
    bank = again.corrected_stage(["a dog", "a dog"]).bank
    np.testing.assert_array_equal(bank.vectors[-1], bank.vectors[-2])
    said = again.stage.vectors(again.outputs("text", CAPTIONS.read_text().splitlines()))
    np.testing.assert_allclose(bank.vectors[:1000], said, atol=1e-3)
    images = views(widths=(("image", 24),))["image"]
    cosines = said @ (images / np.linalg.norm(images, axis=1, keepdims=True)).T
    assert bank.temperature == pytest.approx(0.35 * cosines.std(), rel=0.1)
    picture = [Image.new("RGB", (30, 20), "red")]
    # of weights that are drawn again
    for modality, items in (("text", ["a dog"]), ("image", picture)):
        np.testing.assert_array_equal(
            again.outputs(modality, items), model.outputs(modality, items)
        )


@given(st.integers(1, 40), st.integers(1, 10), st.integers(0, 3))
@settings(max_examples=25)
def test_a_tight_frame_keeps_lengths(n_bits, d, seed):
    rows = np.random.default_rng(seed).normal(size=(7, d))
    found = random_rotation(rows, n_bits, seed, "image")
    gram = found.weights @ found.weights.T if n_bits >= d else found.weights.T @ found.weights
    np.testing.assert_allclose(gram, np.eye(len(gram)), atol=1e-9)
    if n_bits >= d:
        np.testing.assert_allclose(
            np.linalg.norm(found(rows), axis=1), np.linalg.norm(rows - rows.mean(0), axis=1)
        )


@pytest.mark.parametrize(("features", "settings", "message"), [
    ({"image": np.ones((5, 2), np.float32)}, {"codes": "cca-itq"}, "needs images with captions"),
    ({"image": np.ones((5, 2), np.float32)}, {"n_bits": 0}, "bits 0: a code has at least 1 bit"),
    ({"image": np.ones((0, 2), np.float32)}, {}, "no item to fit codes to"),
    ({"image": np.ones((1, 2), np.float32)}, {"codes": "itq"}, "codes itq: are fitted to two"),
    ({"image": np.ones((1, 2), np.float32)}, {"codes": "learned"}, "codes learned: are fitted"),
])  # fmt: skip
def test_bad_input_is_one_line(features, settings, message):
    check_refusal(message, fit, features, **settings)


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
    np.testing.assert_allclose(
        model.outputs("text", texts), photo.features("text", texts)[:, :n_bits], atol=1e-5
    )
    distances = hamming_distances(model.encode("text", texts), model.encode("image", pictures))
    assert distances.argmin(axis=1).tolist() == [0, 1]


def test_photo_ships_what_it_makes_of_a_thousand_captions(photo):
    captions = CAPTIONS.read_text().splitlines()
    assert len(set(captions)) == len(captions) == len(read_bank()) == 1000
    some = slice(None, None, 333)
    made = photo.features("text", captions[some])
    np.testing.assert_allclose(read_bank()[some], made, atol=0.02)
    stage = fit_codes(photo, {}, 64).corrected_stage(["a bright red wall"])
    vectors = stage.bank.vectors.astype(np.float32)
    assert vectors.shape == (1001, 64)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-3)
    units = made[:, :64] / np.linalg.norm(made[:, :64], axis=1, keepdims=True)
    np.testing.assert_allclose(vectors[:1000][some], units, atol=0.01)


@pytest.mark.parametrize("modalities", [("image",), ("text",), ("image", "text")])
def test_what_brings_no_space_of_its_own_has_no_bank(modalities):
    known = {name: values for name, values in views().items() if name in modalities}
    model = fit(known, 8)
    assert model.corrected_stage() is model.stage
    assert model.stage.bank is None


def test_codes_that_captions_join_anew_have_no_bank(photo):
    features = views(120, widths=(("image", 256), ("text", 256)))
    assert fit_codes(photo, features, 16, "cca-itq").corrected_stage().bank is None


def test_longer_codes_of_an_encoder_are_fitted(photo):
    features = {"image": np.random.default_rng(0).normal(size=(5, 256)).astype(np.float32)}
    model = fit_codes(photo, features, 300)
    assert model.architecture["codes"] == "itq"
    assert model.corrected_stage().bank.vectors.shape == (1000, 256)
    says = "codes learned: the encoder photo has 256 bits of its own, not 300; take itq"
    check_refusal(says, fit_codes, photo, features, 300, "learned")
    check_refusal(
        "codes learned: nothing learns them here; take itq",
        fit,
        features,
        16,
        "learned",
    )


# ---- closed forms against their definitions


@pytest.mark.parametrize("method", [random_rotation, pca_itq, cca_itq])
@pytest.mark.parametrize("k", [4, 16])
def test_maps_fit_and_are_a_function_of_the_seed(method, k):
    features = views()
    if method is cca_itq:
        maps, same, other = (method(features, k, seed) for seed in (0, 0, 1))
    else:
        maps, same, other = (
            {name: method(features[name], k, seed, name) for name in features} for seed in (0, 0, 1)
        )
    for name, values in features.items():
        assert maps[name](values).shape == (len(values), k)
        np.testing.assert_array_equal(maps[name].weights, same[name].weights)
        assert not np.array_equal(maps[name].weights, other[name].weights)
        assert abs(maps[name](values).mean(axis=0)).max() < 1e-9


def test_pca_keeps_the_directions_of_largest_variance():
    features = views()
    found = pca_itq(features["image"], 3, 0, "image")
    centred = features["image"] - features["image"].mean(axis=0)
    _, _, right = np.linalg.svd(centred, full_matrices=False)
    literal = right[:3].T @ right[:3]  # the projector on the leading three
    np.testing.assert_allclose(found.weights @ found.weights.T, literal, atol=1e-8)


def test_a_rotation_is_orthogonal_and_each_step_is_the_procrustes_solution():
    projected = views()["image"] @ np.random.default_rng(1).normal(size=(12, 5))
    projected -= projected.mean(axis=0)
    errors, rotation = [], _itq_rotation(projected, 0, "x", iterations=0)
    for step in range(8):
        bits = np.where(projected @ rotation >= 0, 1.0, -1.0)
        errors.append(np.linalg.norm(bits - projected @ rotation))
        literal, _ = orthogonal_procrustes(projected, bits)
        rotation = _itq_rotation(projected, 0, "x", iterations=step + 1)
        np.testing.assert_allclose(rotation, literal, atol=1e-8)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(5), atol=1e-10)
    assert np.all(np.diff(errors) <= 1e-9)
    assert errors[-1] < errors[0]


def test_canonical_directions_solve_the_eigenvalue_problem():
    features = views()
    maps = _cca(features, 7, rho=0.0)
    image, text = (values - values.mean(axis=0) for values in features.values())
    n = len(image)
    sxx, syy, sxy = image.T @ image / n, text.T @ text / n, image.T @ text / n
    literal = np.linalg.eigvals(np.linalg.inv(sxx) @ sxy @ np.linalg.inv(syy) @ sxy.T)
    correlations = np.sqrt(np.sort(literal.real)[::-1][:7])
    a, b = maps["image"](features["image"]), maps["text"](features["text"])
    # Uncorrelated directions of variance ρ², and covariance ρ³ between the views: each is scaled by
    # its correlation.
    np.testing.assert_allclose(a.T @ a / n, np.diag(correlations**2), atol=1e-8)
    np.testing.assert_allclose(b.T @ b / n, np.diag(correlations**2), atol=1e-8)
    np.testing.assert_allclose(a.T @ b / n, np.diag(correlations**3), atol=1e-8)


def test_constant_features():
    features = views()
    features["text"] = np.concatenate([features["text"], np.ones((150, 1))], axis=1)
    assert all(np.isfinite(found.weights).all() for found in cca_itq(features, 4, 0).values())
