import pytest

from picture_runs import features_config, write_picture_features, write_pictures
from small_runs import feature_config, grid_base, train_run, write_features


@pytest.fixture
def base(tmp_path):
    """A base configuration of a grid's."""
    return grid_base(tmp_path)


@pytest.fixture(scope="session")
def teacher(tmp_path_factory):
    """A finished run on features, which no test changes."""
    folder = tmp_path_factory.mktemp("teacher")
    return train_run(
        feature_config(folder / "c.yaml", write_features(folder / "f.npz"), validate_every=0)
    )


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """(a finished run on features of pictures and their texts, the table with the pictures
    themselves).
    """
    folder = tmp_path_factory.mktemp("pictures")
    items = write_pictures(folder)
    config = features_config(folder / "c.yaml", write_picture_features(folder / "f.npz"), epochs=20)
    return train_run(config), items
