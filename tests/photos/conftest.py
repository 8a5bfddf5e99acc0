"""What tests of indexing share: a small model, an empty store for its codes, and a watch that nothing is encoded."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from unittest.mock import Mock

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
def no_encoding(model, monkeypatch) -> Callable[[], AbstractContextManager[None]]:
    """A block in which nothing may be encoded."""

    @contextmanager
    def block() -> Iterator[None]:
        with monkeypatch.context() as patch:
            patch.setattr(type(model), "outputs_prepared", Mock(side_effect=AssertionError("something was encoded")))
            yield

    return block
