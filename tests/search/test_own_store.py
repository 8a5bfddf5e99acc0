"""A store of one's own, that of the page "Add a store": what all stores promise, and every command
that takes an address. Its addresses have no ``://``.
"""

import ast
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from fastapi.testclient import TestClient
from tests.search.contract import N_BITS, Kind, random_codes
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
from tests.search.test_transfer import (  # noqa: F401
    contents_of,
    make_source,
    push,
    test_everything_arrives,
)

from channelhash import search
from channelhash.codes import CodeSet, pack
from channelhash.codes.stage import Stage
from channelhash.search import STORES, Address, Item, open_store
from channelhash.serve.app import open_app
from channelhash.serve.service import Limits
from pages import DOCS, blocks_of
from picture_runs import write_pictures
from refusals import check_refusal
from small_runs import assert_refused, run_json


@pytest.fixture(autouse=True, scope="module")
def _json_store():
    """The module that the page adds, with its line in the registry."""
    page = (DOCS / "how-to" / "add-a-store.md").read_text(encoding="utf-8")
    (block,) = (block for block in blocks_of(page) if block.title)
    module = ModuleType("json_file")
    exec(compile(block.code, "json_file.py", "exec"), vars(module))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "json_file", module)
        patch.setitem(STORES, module.SCHEME, module.JsonStore)
        yield


def address_in(folder: Path) -> str:
    return f"json+{folder / 'items.json'}"


@pytest.fixture
def kind() -> Kind:
    return Kind(lambda folder: open_store(address_in(folder), n_bits=N_BITS), runs=3)


@pytest.fixture
def store(kind, tmp_path):
    with kind.open(tmp_path) as opened:
        yield opened


@pytest.fixture
def target(tmp_path) -> str:
    return address_in(tmp_path)


def test_it_is_recognised_by_its_scheme_alone(tmp_path):
    address = Address.parse(address_in(tmp_path))
    assert address.scheme == "json+"
    assert address.path is None
    assert address.store == address
    assert not address.keeps_projections
    check_refusal("no store at json", open_store, address)
    check_refusal("keeps no projections", open_store, address, n_bits=8, stage=Stage(64))


def test_it_is_pushed_to_without_projections_and_from(tmp_path):
    outputs = np.random.default_rng(0).normal(size=(5, 64))
    with open_store(tmp_path / "projected", n_bits=64, stage=Stage(64)) as store:
        store.add(list("abcde"), pack(outputs >= 0), projections=outputs)
    target = address_in(tmp_path)
    assert push(tmp_path / "projected", target).without_projections
    check_refusal("is the source", push, target, target)
    assert push(target, tmp_path / "back").items == 5
    assert contents_of(tmp_path / "back") == contents_of(target)


@pytest.fixture
def filled(tmp_path, saved_model, capsys) -> str:
    """The address of a store with the images and texts of a table."""
    address = address_in(tmp_path)
    table = write_pictures(tmp_path / "data", 12)
    done = run_json(capsys, "index", "create", address, table, "--encoder", saved_model)
    assert (done["store"], done["added"]) == (address, 12)
    return address


def test_items_are_added_found_and_deleted_by_commands(filled, tmp_path, saved_model, capsys):
    table = tmp_path / "data" / "items.csv"
    again = run_json(capsys, "index", "add", filled, table, "--model", saved_model)
    assert (again["unchanged"], again["items"]) == (12, 12)
    by_id = run_json(capsys, "search", filled, "--like", "item003")["results"]
    assert by_id[0]["distance"] == 0
    by_image = ("--image", by_id[0]["image"], "--model", saved_model)
    assert run_json(capsys, "search", filled, *by_image)["results"][0]["distance"] == 0
    deleted = run_json(capsys, "index", "delete", filled, "item003")
    assert deleted == {"deleted": 1, "unknown": [], "items": 11}
    info = run_json(capsys, "index", "info", filled)
    assert (info["address"], info["items"]) == (filled, 11)


def test_it_is_pushed_explained_and_searched_for_duplicates_by_commands(filled, tmp_path, capsys):
    pushed = run_json(capsys, "index", "push", filled, tmp_path / "copy.store")
    assert pushed["target_items"] == 12
    back = run_json(capsys, "index", "push", tmp_path / "copy.store", filled)
    assert (back["items"], back["target_items"]) == (12, 12)
    assert "groups" in run_json(capsys, "duplicates", filled, "--no-pictures")
    pair = ("--like", "item001", "--like", "item002")
    assert "bits" in run_json(capsys, "explain", filled, *pair)


def test_a_file_of_codes_goes_into_it(tmp_path, capsys):
    address, file = address_in(tmp_path), tmp_path / "codes.parquet"
    CodeSet(["a", "b"], {"image": random_codes(2)}, None, N_BITS).save(file)
    assert run_json(capsys, "index", "create", address, file)["added"] == 2
    assert run_json(capsys, "index", "add", address, file)["unchanged"] == 2
    assert_refused(capsys, "index", "create", address, file, says="already a store")


def test_it_is_served(filled, saved_model):
    app = open_app({"": filled}, saved_model, Limits(), None, None)
    with TestClient(app, base_url="http://127.0.0.1") as client:
        found = client.post("/search", json={"text": "a red picture", "k": 3})
    assert len(found.json()["results"]) == 3


def test_it_is_listed_by_the_first_line_of_its_file(capsys):
    listed = run_json(capsys, "list", "stores")
    assert listed["json+ADDRESS"].startswith("a store in one JSON file")


@pytest.mark.parametrize(
    ("question", "lines"),
    [
        ("Stop parking", "No PARKING\nStop"),
        ("CAFÉ", "café 17"),
        ("park", ""),
        ("stop zebra", "Stop"),
        ("", ""),
    ],
)
def test_it_quotes_the_first_line_with_each_word(store, question, lines):
    item = Item("a", {}, {"ocr": "No PARKING\nStop\ncafé 17\nstop"})
    assert store.quote(item, question) == " ".join(lines.split("\n"))


def test_only_what_opens_folders_imports_their_store():
    importing = set()
    for file in Path(search.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and "search.sqlite" in (node.module or ""):
                importing.add(file.stem)
    assert importing == {"__init__", "address"}
