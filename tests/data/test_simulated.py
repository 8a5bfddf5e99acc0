"""Features made of label rows."""

import numpy as np
import pytest

from channelhash.data.synthetic import load_simulated
from channelhash.errors import InputError
from channelhash.utils.seeds import generator
from small_runs import run_command


@pytest.fixture
def path(tmp_path):
    labels = np.random.default_rng(0).random((300, 5)) < 0.3
    np.savez(tmp_path / "labels.npz", labels=labels, label_names=np.array(list("abcde")))
    return tmp_path / "labels.npz"


def test_features_are_labels_times_a_matrix_plus_noise(path):
    records = load_simulated(path, rows=200, width=16, image_noise=0.5, text_noise=0.0, simulation_seed=3)
    with np.load(path) as arrays:
        labels = arrays["labels"]
    rows = np.array([int(name) for name in records.ids])
    np.testing.assert_array_equal(records.labels, labels[rows])
    assert records.labels.any(axis=1).all()
    assert len(set(rows)) == 200
    for modality, noise in (("image", 0.5), ("text", 0.0)):
        random = generator(3, "simulated features", modality)
        matrix, spread = random.standard_normal((5, 16)), random.standard_normal((200, 16))
        expected = np.array(
            [sum(matrix[j] for j in range(5) if row[j]) / 5**0.5 + np.zeros(16) for row in records.labels]
        )
        np.testing.assert_allclose(records.items[modality], expected + noise * spread, atol=1e-5)


def test_the_same_seed_is_the_same_collection(path):
    first, again, other = (load_simulated(path, rows=50, simulation_seed=seed) for seed in (0, 0, 1))
    assert first.ids == again.ids
    assert first.ids != other.ids
    np.testing.assert_array_equal(first.items["text"], again.items["text"])


def test_too_many_rows_and_a_file_without_labels_are_refused(path, tmp_path):
    with pytest.raises(InputError, match=r"data\.rows is 14000, but .*labels\.npz has \d+ rows with a label"):
        load_simulated(path)
    np.savez(tmp_path / "x.npz", image=np.zeros((3, 2)))
    with pytest.raises(InputError, match="has no array 'labels'; it has image"):
        load_simulated(tmp_path / "x.npz", rows=1)


def test_a_command_describes_it(path, capsys):
    sizes = ["--set", "rows=200", "--set", "queries=20", "--set", "train=50"]
    assert run_command("data", "describe", "simulated", "--path", path, *sizes, "--json") == 0
    assert '"found": 300' in capsys.readouterr().out
