"""The server does what its own description (OpenAPI) says, whatever it is asked."""

import re

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi import checks

from serve.served import WRITER

CHECKS = [not_a_server_error, checks.status_code_conformance, checks.content_type_conformance]
CHECKS += [
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]


def kept_alive(app):
    """The application for schemathesis, which would begin and end it with every call; an ended one
    has no store.
    """

    async def asked(scope, receive, send):
        if scope["type"] == "http":
            await app(scope, receive, send)
            return
        for _ in ("lifespan.startup", "lifespan.shutdown"):
            message = await receive()
            await send({"type": f"{message['type']}.complete"})

    return asked


@pytest.fixture(scope="module")
def description(client):
    return schemathesis.openapi.from_asgi("/openapi.json", kept_alive(client.app))


def takes_anything(operation):
    """Whether no request can contradict the description: it takes any string in the address."""
    return not (operation.body or operation.query)


@pytest.mark.parametrize("mode", list(schemathesis.GenerationMode), ids=lambda mode: mode.value)
def test_the_server_does_what_its_description_says(description, client, mode):
    operations = [found.ok() for found in description.get_all_operations()]
    asked = [
        operation for operation in operations if mode.is_positive or not takes_anything(operation)
    ]
    described = client.get("/openapi.json").json()["paths"]
    assert len(operations) == sum(len(methods) for methods in described.values())
    assert {"/search", "/items", "/explain"} <= {operation.path for operation in asked}
    for operation in asked:
        ask_at_random(operation, mode)


def ask_at_random(operation, mode):
    @settings(
        max_examples=12, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(operation.as_strategy(generation_mode=mode))
    def ask(case):
        answer = case.call(headers=WRITER)
        in_form = case.media_type == "multipart/form-data" and isinstance(case.body, dict)
        # when it arrives
        is_text = in_form and any(isinstance(value, int | float) for value in case.body.values())
        if answer.status_code != 413:  # a rejection, too, of what is longer than any body may be
            wrong_is_right = [checks.negative_data_rejection] if is_text else []
            case.validate_response(answer, checks=CHECKS, excluded_checks=wrong_is_right)
        if not mode.is_negative and answer.status_code == 422:
            line = answer.json()["error"]
            said = re.match(
                "the body: (give text, id, code or vector|.* are several queries)", line
            )
            assert not said, "the description says it, so it is never asked"

    ask()
