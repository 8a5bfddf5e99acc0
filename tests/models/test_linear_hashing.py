"""Closed forms against their definitions."""

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from channelhash.codes import binarize, hamming_distances, pack
from channelhash.models.fitted import cca, cca_itq, itq_rotation, pca_itq, random_rotation


def make_views(n=200, seed=0):
    """Two modalities of a common signal of three dimensions, with noise."""
    random = np.random.default_rng(seed)
    signal = random.normal(size=(n, 3)) * [3, 2, 1]
    return {
        name: signal @ random.normal(size=(3, d)) + 0.5 * random.normal(size=(n, d)) + random.normal(size=d)
        for name, d in (("image", 10), ("text", 7))
    }


@pytest.mark.parametrize("method", [random_rotation, pca_itq, cca_itq])
@pytest.mark.parametrize("k", [4, 16])
def test_maps_fit_and_are_a_function_of_the_seed(method, k):
    views = make_views()
    if method is cca_itq:
        maps, same, other = (method(views, k, seed) for seed in (0, 0, 1))
    else:
        maps, same, other = ({name: method(views[name], k, seed, name) for name in views} for seed in (0, 0, 1))
    for name, values in views.items():
        assert maps[name](values).shape == (len(values), k)
        np.testing.assert_array_equal(maps[name].weights, same[name].weights)
        assert not np.array_equal(maps[name].weights, other[name].weights)
        assert abs(maps[name](values).mean(axis=0)).max() < 1e-9


def test_pca_keeps_the_directions_of_largest_variance():
    views = make_views()
    found = pca_itq(views["image"], 3, 0, "image")
    centred = views["image"] - views["image"].mean(axis=0)
    _, _, right = np.linalg.svd(centred, full_matrices=False)
    literal = right[:3].T @ right[:3]  # the projector on the leading three
    np.testing.assert_allclose(found.weights @ found.weights.T, literal, atol=1e-8)


def test_a_rotation_is_orthogonal_and_each_step_is_the_procrustes_solution():
    projected = make_views()["image"] @ np.random.default_rng(1).normal(size=(10, 5))
    projected -= projected.mean(axis=0)
    errors, rotation = [], itq_rotation(projected, 0, "x", iterations=0)
    for step in range(8):
        bits = np.where(projected @ rotation >= 0, 1.0, -1.0)
        errors.append(np.linalg.norm(bits - projected @ rotation))
        literal, _ = orthogonal_procrustes(projected, bits)
        rotation = itq_rotation(projected, 0, "x", iterations=step + 1)
        np.testing.assert_allclose(rotation, literal, atol=1e-8)
    np.testing.assert_allclose(rotation @ rotation.T, np.eye(5), atol=1e-10)
    assert np.all(np.diff(errors) <= 1e-9)
    assert errors[-1] < errors[0]


def test_canonical_directions_solve_the_eigenvalue_problem():
    views = make_views()
    maps = cca(views, 7, rho=0.0)
    image, text = (values - values.mean(axis=0) for values in views.values())
    n = len(image)
    sxx, syy, sxy = image.T @ image / n, text.T @ text / n, image.T @ text / n
    literal = np.linalg.eigvals(np.linalg.inv(sxx) @ sxy @ np.linalg.inv(syy) @ sxy.T)
    correlations = np.sqrt(np.sort(literal.real)[::-1][:7])
    a, b = maps["image"](views["image"]), maps["text"](views["text"])
    # Uncorrelated directions of variance ρ², and covariance ρ³ between the views: each is scaled by its correlation.
    np.testing.assert_allclose(a.T @ a / n, np.diag(correlations**2), atol=1e-8)
    np.testing.assert_allclose(b.T @ b / n, np.diag(correlations**2), atol=1e-8)
    np.testing.assert_allclose(a.T @ b / n, np.diag(correlations**3), atol=1e-8)


def test_codes_of_a_pair_are_near_where_there_is_a_common_space():
    views = make_views(400)
    train = {name: values[:200] for name, values in views.items()}
    maps = cca_itq(train, 3, 0)
    packed = {name: pack(binarize(maps[name](values[200:]))) for name, values in views.items()}
    distances = hamming_distances(packed["image"], packed["text"])
    assert np.diag(distances).mean() < 0.5 * distances.mean()


def test_constant_features_and_one_modality():
    views = make_views()
    views["text"] = np.concatenate([views["text"], np.ones((200, 1))], axis=1)
    assert all(np.isfinite(found.weights).all() for found in cca_itq(views, 4, 0).values())
    with pytest.raises(ValueError, match="of two modalities, not of image"):
        cca({"image": views["image"]}, 4)
