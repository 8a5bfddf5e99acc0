"""Stores in Milvus: what all stores promise, and what is special about them."""

import sys
from unittest.mock import DEFAULT, Mock

import grpc
import pytest
from pymilvus import MilvusClient, MilvusException
from tests.search.contract import N_BITS, Kind, random_codes
from tests.search.servers import milvus_address, server, stop_server
from tests.search.test_store_contract import (  # noqa: F401
    odd_stores,
    test_a_filter_means_the_same_in_every_store,
    test_a_refused_call_changes_nothing,
    test_a_time_means_its_moment_in_every_writing,
    test_an_empty_store_finds_nothing,
    test_any_calls_in_any_order,
    test_odd_values_come_back,
    test_only_dates_that_can_be_compared_narrow_in_every_store,
)
from tests.search.test_transfer import test_everything_arrives  # noqa: F401

from channelhash.errors import JobError
from channelhash.search import milvus, open_store
from channelhash.search.filters import parse_filter
from channelhash.search.milvus_filters import to_milvus
from refusals import check_refusal


@pytest.fixture(autouse=True, scope="module")
def _until_the_end_of_this_file():
    yield
    stop_server()


#: What is promised of all stores.
CONTRACT = Kind(
    lambda folder: open_store(milvus_address(folder), n_bits=N_BITS), ties_by_id=False, runs=3
)


@pytest.fixture(params=[pytest.param(CONTRACT, id="milvus", marks=pytest.mark.slow)])
def kind(request) -> Kind:
    return request.param


@pytest.fixture
def store(kind, tmp_path):
    with kind.open(tmp_path) as opened:
        yield opened


@pytest.fixture(params=[pytest.param("milvus", marks=pytest.mark.slow)])
def target(tmp_path) -> str:
    return milvus_address(tmp_path)


@pytest.mark.parametrize(("text", "message"), [
    ("milvus+http://host:19530", "COLLECTION"), ("milvus+http://host/c", "HOST:PORT"),
    ("milvus+http://host:many/c", "HOST:PORT"), ("milvus+host:19530/c", "write it as"),
    ("milvus+http://h:1/c?index=BIN_FLAT", "write it as"),
    ("milvus+http://h:1/a-b", "no name of a collection"),
    ("milvus+/tmp/a.db/c", "in a file, use a store's folder"),
])  # fmt: skip
def test_addresses_that_are_refused(text, message):
    check_refusal(message, open_store, text)


def test_the_server_is_the_address_s_and_the_token_that_of_the_environment(monkeypatch):
    def refuse(uri, token, timeout):
        raise MilvusException(message=f"{uri} {token}")

    monkeypatch.setenv("MILVUS_TOKEN", "root:secret")
    monkeypatch.setattr("pymilvus.MilvusClient", refuse)
    check_refusal(r"\(https://host:1 root:secret\)", open_store, "milvus+https://host:1/c/")


def test_a_server_that_does_not_answer_and_a_package_that_is_missing_are_one_line(
    monkeypatch, capfd
):
    monkeypatch.setattr(milvus, "_CONNECT_SECONDS", 0.2)
    check_refusal("is the server there", open_store, "milvus+http://127.0.0.1:1/c")
    assert "Traceback" not in capfd.readouterr().err
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    check_refusal(r"pip install 'channelhash\[milvus\]'", open_store, "milvus+http://host:19530/c")


@pytest.mark.parametrize(("where", "expression"), [
    ("label LIKE 'd%' OR NOT label > 'a'", '((id in ["x", "y"]) or (id in ["not"]))'),
    ("text = 'it''s \"x\"\n\\'", r'(metadata["text"] == "it' + "'" + r's \"x\"\n\\")'),
    ("NOT label = 'dog'", '(not (array_contains(labels, "dog")))'),
    ("text LIKE 'sea%'", '(id in ["x", "y"])'), ("text NOT LIKE '%a'", '(id in ["not"])'),
    ("NOT year = 9007199254740992", '(id in ["not"])'),
    ("year <> 3 OR id = 'a'", '(((metadata["year"] < 3 or metadata["year"] > 3)) or (id == "a"))'),
    ("year IS NULL", '(keys in ["[\\"a\\"]"])'), ("id IS NULL", '(keys == "")'),
    ("text IS NULL", '(keys in ["[\\"a\\", \\"year\\"]", "[\\"a\\"]"])'),
])  # fmt: skip
def test_expressions_for_a_server(where, expression):
    sets, tree = ['["a", "year"]', '["a"]'], parse_filter(where, ["a", "year"])
    assert (
        to_milvus(tree, sets, lambda condition: ["not"] if condition.negated else ["x", "y"])
        == expression
    )


@pytest.mark.slow
def test_more_answers_than_milvus_returns(store, monkeypatch):
    store.add([f"{n}" for n in range(6)], random_codes(6))
    monkeypatch.setattr(milvus, "_MAX_ANSWERS", 5)
    check_refusal("k is 6; Milvus returns at most 5", store.search, random_codes(1), 6)
    check_refusal("limit is 6", store.search_radius, random_codes(1), 3, limit=6)
    check_refusal(
        "query 0 has 5 items or more within 12 bits", store.search_radius, random_codes(1), 12
    )
    assert len(store.search_radius(random_codes(1), 12, limit=5).ids[0]) == 5


@pytest.mark.slow
def test_a_collection_of_somebody_else_or_in_another_format_is_refused(store, monkeypatch):
    store.add(["a"], random_codes(1))
    monkeypatch.setattr(milvus, "_FORMAT", "channelhash 9")
    check_refusal("this version reads 'channelhash 9'; push it again", open_store, store.address)
    address = milvus_address("foreign")
    client = MilvusClient(server())
    client.create_collection(address.rpartition("/")[2], dimension=4, timeout=60)
    check_refusal("not made by channelhash", open_store, address)
    client.close()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "metadata", "message"), [
    ("x" * 65_536, {}, "id of 65,542 bytes"),
    ("a", {"text": "x" * 65_535}, "metadata of 65,547 bytes"),
    ("a", {"labels": [str(n) for n in range(milvus._MAX_LABELS + 1)]}, "4,097 labels"),
    ("a", {"labels": ["x" * 65_536]}, "label 'xxx.* of 65,536 bytes"),
])  # fmt: skip
def test_what_is_too_large_for_milvus(store, name, metadata, message):
    check_refusal(message, store.add, ["b", name], random_codes(2), metadata=[{}, metadata])
    assert len(store) == 0


@pytest.mark.slow
def test_an_error_between_two_requests_says_how_far_it_came(store, monkeypatch):
    monkeypatch.setattr(milvus, "_ROWS", 3)
    store.add(["first"], random_codes(1))
    fails_the_second_time = [DEFAULT, MilvusException(message="the disk\nis full"), *[DEFAULT] * 3]
    upsert = Mock(wraps=store._client.upsert, side_effect=fails_the_second_time)
    monkeypatch.setattr(store._client, "upsert", upsert)
    names = [f"n{n}" for n in range(7)]
    with pytest.raises(
        JobError, match="after 3 of 7 items were written: Milvus says: the disk is full"
    ):
        store.add(names, random_codes(7))
    assert len(store) == 4
    store.upsert(names, random_codes(7))
    assert len(store) == 8


@pytest.mark.slow
def test_no_answer_in_time_is_told_in_one_line(store, monkeypatch):
    store.add(["a"], random_codes(1))

    class Late(grpc.RpcError):
        def code(self):
            return grpc.StatusCode.DEADLINE_EXCEEDED

    monkeypatch.setattr(MilvusClient, "query", Mock(side_effect=Late))
    check_refusal(r"count: no answer .DEADLINE_EXCEEDED.; try again", len, store, error=JobError)
