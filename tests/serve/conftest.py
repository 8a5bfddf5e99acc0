"""What tests of the server share: a small model, and a client of a small store. New for each file
of tests.
"""

import pytest

from serve.served import serving, small_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="module")
def model(folder):
    return small_model(folder)


@pytest.fixture(scope="module")
def client(folder, model):
    with serving(folder, model) as client:
        yield client
