"""What tests of indexing share: a small model, an empty store for its codes, and a watch that
nothing is encoded.
"""

from functools import partial
from unittest.mock import patch

import pytest

import channelhash as ch
from small_stores import small_model


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return small_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def store(tmp_path, model):
    return ch.open_store(tmp_path / "store", model.n_bits, model.fingerprint())


@pytest.fixture
def no_encoding(model):
    """A block in which nothing may be encoded."""
    return partial(
        patch.object,
        type(model),
        "outputs_prepared",
        side_effect=AssertionError("something was encoded"),
    )
