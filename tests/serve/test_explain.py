"""Explaining over HTTP gives what explaining in the process gives; what cannot be explained is
refused.
"""

import json
from functools import partial

import numpy as np
import pytest
from fastapi.testclient import TestClient

from channelhash.codes import CodeSet, unpack
from channelhash.explanation import MapSettings
from channelhash.explanation.api import Side, explain_pair
from channelhash.explanation.bits import BitLabels
from channelhash.search import open_store
from channelhash.search.query import encode_items
from channelhash.serve.service import Limits
from serve.served import N_BITS, ODD_ID, app_of, refused, serving

SMALL = {"cells": 3, "patch": 1}


def asked(client, first, second, **options) -> dict:
    answer = client.post("/explain", json={"first": first, "second": second, **SMALL, **options})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_words_and_a_picture_are_explained_as_in_the_process(client, model):
    found = asked(client, {"text": "a dark red picture"}, {"id": "item007", "modality": "image"})
    assert found.pop("seconds") > 0
    encoders = {modality: partial(encode_items, model, modality) for modality in model.modalities}
    (item,) = client.app_store.get(["item007"])
    text = Side.encode("text", "a dark red picture", encoders["text"])
    sides = text, Side.load(item, "image", N_BITS, encoders)
    expected = explain_pair(
        sides, BitLabels.load(client.app_store), encoders, MapSettings(**SMALL)
    ).as_dict()
    rounded = partial(pytest.approx, abs=1e-4)  # batches are of another size
    assert found == json.loads(
        json.dumps(expected), parse_float=lambda digits: rounded(float(digits))
    )
    assert found["sides"][1]["map"]["rows"] == 3
    assert [word["word"] for word in found["sides"][0]["words"]] == ["a", "dark", "red", "picture"]


def test_an_uploaded_picture_is_explained_and_has_a_map_of_its_own(client, folder):
    content = (folder / "images" / "7.png").read_bytes()
    form = {"id": "item007", "modality": "image", "cells": "3", "patch": "1"}
    answer = client.post("/explain/image", files={"image": content}, data=form)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert (found["distance"], found["sides"][0]["map"]) == (0, found["sides"][1]["map"])


def test_a_code_and_an_item_without_picture_have_bits_alone_and_maps_can_be_left_out(client):
    (item,) = client.app_store.get(["item003"])
    found = asked(client, {"code": item.codes["image"].tobytes().hex()}, {"id": ODD_ID})
    assert found["bits"][0]["strengths"][0] is None
    bits = unpack(item.codes["image"][None], N_BITS)[0]
    assert [bit["values"][0] for bit in found["bits"]] == bits.astype(int).tolist()
    assert found["sides"][1]["modality"] == "text"
    assert found["remarks"][0] == "no map of a code: only its bits are known"
    # its words in the store are others than those encoded
    assert "differs in" in found["remarks"][1]
    found = asked(client, {"text": "red"}, {"id": "item007"}, maps=False)
    assert ([side["map"] for side in found["sides"]], found["remarks"]) == ([None, None], [])


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        (
            {"first": {"text": "red"}, "second": {}},
            422,
            "second: give exactly one of text, id and code",
        ),
        (
            {"first": {"text": "red", "id": "a"}, "second": {"text": "a"}},
            422,
            "first: give exactly one",
        ),
        ({"first": {"text": " "}, "second": {"text": "a"}}, 422, "first.text: is empty"),
        (
            {"first": {"text": "red", "modality": "image"}, "second": {"text": "a"}},
            422,
            "first: a text has",
        ),
        ({"first": {"text": "red"}, "second": {"id": "nobody"}}, 404, "no item 'nobody'"),
        (
            {"first": {"text": "red"}, "second": {"id": ODD_ID, "modality": "image"}},
            422,
            "no image code",
        ),
        ({"first": {"text": "red"}, "second": {"code": "ab"}}, 422, "code: 2 hexadecimal digits"),
        ({"first": {"text": "red"}, "second": {"text": "a"}, "patch": 9}, 422, "patch"),
    ],
)
def test_what_cannot_be_explained_is_refused(client, body, status, says):
    refused(client.post("/explain", json=body), status, says=says)


def test_a_picture_that_has_gone_and_limits_are_said(tmp_path, model):
    with serving(tmp_path, model, limits=Limits(patches=11, words=1)) as client:
        (tmp_path / "images" / "3.png").unlink()
        found = asked(client, {"text": "dark red"}, {"id": "item003", "modality": "image"})
        assert len(found["sides"][0]["words"]) == 1
        assert found["remarks"][0].endswith("only its first 1 words were left out in turn")
        assert "not there any more" in found["remarks"][1]
        found = asked(client, {"text": "red"}, {"id": "item004", "modality": "image"})
        assert "12 patches" in found["remarks"][0]
        assert found["sides"][1]["map"] is None


def test_an_empty_store_explains_codes_and_a_server_without_model_too(tmp_path, model, folder):
    store = open_store(tmp_path / "empty", N_BITS, model.fingerprint())
    with TestClient(app_of(store, model)) as client:
        assert asked(client, {"code": "fff0"}, {"code": "0000"})["distance"] == N_BITS
    image, path = np.zeros((1, 2), np.uint8), str(folder / "images" / "1.png")
    CodeSet(["a"], {"image": image}, None, N_BITS, images=[path]).save(tmp_path / "codes.parquet")
    with TestClient(app_of(open_store(tmp_path / "codes.parquet"), None)) as client:
        found = asked(client, {"id": "a"}, {"code": "8000"})
        assert (found["distance"], len(found["remarks"])) == (1, 2)
        answer = client.post("/explain", json={"first": {"id": "a"}, "second": {"text": "red"}})
        refused(answer, 422, says="no model")
