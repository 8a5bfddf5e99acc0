"""Settings come from signatures; mistakes are one line that names the nearest known key."""

from pathlib import Path

import pytest

from channelhash.config import make_config, read_config
from channelhash.errors import InputError
from channelhash.settings import read_settings, settings_of, unknown


def load(path: Path, count: int = 3, share: float | None = None) -> None:
    """A function whose arguments are settings."""


def test_a_functions_arguments_are_its_settings():
    kind = settings_of(load)
    values = read_settings(kind, {"path": "a/b"}, "data")
    assert values.model_dump() == {"path": Path("a/b"), "count": 3, "share": None}
    assert list(settings_of(load, frozenset({"count"})).model_fields) == ["path", "share"]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "data.path: is missing and has no default"),
        ({"path": "x", "cuont": 1}, "unknown key data.cuont; did you mean 'count'?"),
        ({"path": "x", "zzz": 1}, "unknown key data.zzz; known: path, count, share"),
        ({"path": "x", "count": "many"}, "data.count: input should be a valid integer"),
    ],
)
def test_mistakes_name_the_key(values, says):
    with pytest.raises(InputError) as caught:
        read_settings(settings_of(load), values, "data")
    assert str(caught.value).startswith(says)


def test_the_nearest_name_is_offered():
    assert unknown("loss 'dcsh'", "dcsh", ["dsch", "tdsrdh"]) == "unknown loss 'dcsh'; did you mean 'dsch'?"


VALUES = {
    "data": {"kind": "synthetic", "root": "somewhere", "queries": 10, "seed": 4},
    "model": {"name": "small", "n_bits": 24},
    "loss": {"name": "dsch", "gamma_w": 2},
    "train": {"epochs": 3},
}


def test_a_configuration_is_complete_and_reads_back_as_itself(tmp_path):
    config = make_config(VALUES)
    path = tmp_path / "config.yaml"
    path.write_text(config.to_yaml())
    assert read_config(path) == config
    assert read_config(path).to_yaml() == config.to_yaml()
    assert config.source.root.is_absolute()  # a run's folder can be used from anywhere
    assert (config.split.queries, config.split.seed, config.n_bits) == (10, 4, 24)


def test_literature_sizes_are_the_default_of_their_data_set(tmp_path):
    config = make_config({**VALUES, "data": {"kind": "mirflickr25k", "root": "x"}})
    assert (config.split.queries, config.split.train, config.split.validation_queries) == (2000, 10000, 2000)
    config = make_config({**VALUES, "data": {"kind": "mirflickr25k", "root": "x", "train": 500}})
    assert (config.split.queries, config.split.train) == (2000, 500)


def test_ready_configurations_are_valid():
    folder = Path(__file__).parents[1] / "configs"
    names = sorted(path.name for path in folder.glob("*.yaml"))
    assert {"demo.yaml", "features.yaml", "table.yaml"} <= set(names)
    for name in names:
        read_config(folder / name)
