"""Moving items to another store, also when that breaks off, and codes to FAISS and back."""

import json
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from tests.search.contract import N_BITS, random_codes
from tests.search.servers import postgres_address

import channelhash as ch
from channelhash.cli.index import _push
from channelhash.codes.stage import Stage
from channelhash.search import Address, open_store, transfer
from channelhash.utils.progress import Progress, no_progress
from refusals import check_refusal


def make_source(folder: Path, n: int = 25) -> Path:
    """Images, of which some have texts, and texts alone."""
    with open_store(folder, n_bits=N_BITS, model="m") as store:
        ids = [f"it's {row}" for row in range(n)]
        store.add(
            ids,
            random_codes(n),
            metadata=[{"year": row, "labels": ["dog"] * (row % 2)} for row in range(n)],
        )
        store.add([*ids[:7], "only words"], random_codes(8, seed=1), "text")
    return folder


def push(source: str | Path, target: str | Path, progress: Progress = no_progress):
    return transfer.push(Address.parse(source), Address.parse(target), progress)


def contents_of(address: str | Path) -> list[tuple[str, dict[str, bytes], dict[str, object]]]:
    with open_store(address) as store:
        items = store.get(store.ids())
    return [
        (item.id, {m: code.tobytes() for m, code in item.codes.items()}, dict(item.metadata))
        for item in items
    ]


@pytest.fixture(params=["folder", "postgres"])
def target(request, tmp_path) -> str:
    return str(tmp_path / "target") if request.param == "folder" else postgres_address(tmp_path)


def test_everything_arrives(tmp_path, target, monkeypatch):
    """Also after a push that broke off."""
    source = make_source(tmp_path / "source")
    progress = Mock(side_effect=[None, None, KeyboardInterrupt, *[None] * 4])
    monkeypatch.setattr(transfer, "_BATCH", 10)
    with pytest.raises(KeyboardInterrupt):
        push(source, target, progress)
    assert len(contents_of(target)) == 20
    assert push(source, target, progress) == transfer._Pushed(items=26, target_items=26)
    assert [step.args for step in progress.call_args_list] == [
        (n, 26) for n in (0, 10, 20, 0, 10, 20, 26)
    ]
    assert contents_of(target) == contents_of(source)


def test_projections_arrive_where_they_can_be_kept(tmp_path, target):
    outputs = np.random.default_rng(0).normal(size=(5, 64))
    with open_store(tmp_path / "projected", n_bits=64, stage=Stage(64)) as store:
        store.add([str(row) for row in range(5)], ch.codes.pack(outputs >= 0), projections=outputs)
    assert not push(tmp_path / "projected", target).without_projections
    with open_store(target) as store:
        assert store.search_projections(outputs, 1).ids == [[str(row)] for row in range(5)]


def test_a_store_with_other_projections_is_no_target(tmp_path):
    outputs = np.random.default_rng(0).normal(size=(5, 64))
    for name, similarity in (("from", "cosine"), ("to", "inner")):
        stage = Stage(64, similarity=similarity)
        with open_store(tmp_path / name, n_bits=64, stage=stage) as store:
            store.add(list("abcde"), ch.codes.pack(outputs >= 0), projections=outputs)
    addresses = [Address.parse(tmp_path / name) for name in ("from", "to")]
    check_refusal("to: keeps other projections than .*from; choose a new", push, *addresses)


def test_what_is_deleted_meanwhile_does_not_arrive(tmp_path, monkeypatch):
    with ch.open_store(tmp_path / "from", n_bits=8) as store:
        store.add(["a", "b"], np.zeros((2, 1), np.uint8))
        monkeypatch.setattr(store, "ids", lambda: ["a", "b", "gone"])
        (items,) = transfer._read(store, no_progress)
        assert [item.id for item in items] == ["a", "b"]


def test_what_cannot_be_pushed(tmp_path):
    source = make_source(tmp_path / "source")
    with open_store(tmp_path / "other", n_bits=N_BITS, model="another") as other:
        other.add(["a"], random_codes(1))
    check_refusal("no store in a folder", push, tmp_path, "x")
    check_refusal("is the source", push, source, str(source))
    check_refusal("codes of another model", push, source, str(tmp_path / "other"))
    check_refusal("no name of a collection", push, source, "milvus+http://h:1/a-b")


def test_the_command(tmp_path, capsys):
    source, target = make_source(tmp_path / "source"), str(tmp_path / "target")
    _push(source, target, as_json=True)
    moved = {"target": target, "items": 26, "target_items": 26, "without_projections": False}
    assert json.loads(capsys.readouterr().out) == moved
    _push(source, target, as_json=False)
    assert capsys.readouterr().out == f"26 items of {source} are in {target}; it holds 26\n"
