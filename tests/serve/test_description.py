"""The server does what its own description (OpenAPI) says, whatever it is asked."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)

from serve.served import WRITER, serving, small_model

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]


@pytest.fixture(scope="module")
def application(tmp_path_factory):
    folder = tmp_path_factory.mktemp("described")
    with serving(folder, model=small_model(folder)) as client:
        yield client.app


@pytest.fixture
def described(application):
    return schemathesis.openapi.from_asgi("/openapi.json", application)


schema = schemathesis.pytest.from_fixture("described")


@schema.parametrize()
@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
def test_the_server_does_what_its_description_says(case):
    case.call_and_validate(headers=WRITER, checks=CHECKS)
