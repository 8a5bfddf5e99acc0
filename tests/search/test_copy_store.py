"""Moving a store's items to another store, also when that breaks off in the middle."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.search.postgres_server import postgres_address

import channelhash as ch
from channelhash.cli.index import _push as push_command
from channelhash.errors import InputError
from channelhash.search import open_store
from channelhash.search import transfer as push

N_BITS = 12


def codes_of(n: int, seed: int = 0) -> np.ndarray:
    return ch.codes.pack(np.random.default_rng(seed).random((n, N_BITS)) < 0.5)


def make_source(folder: Path, n: int = 25) -> Path:
    """Images, of which some have texts, and texts alone."""
    store = open_store(folder, n_bits=N_BITS, model="m")
    ids = [f"it's {row}" for row in range(n)]
    store.add(ids, codes_of(n), metadata=[{"year": row, "labels": ["dog"] * (row % 2)} for row in range(n)])
    store.add([*ids[:7], "only words"], codes_of(8, seed=1), "text")
    store.close()
    return folder


def contents_of(address: str | Path) -> list[tuple[str, dict[str, bytes], dict[str, object]]]:
    with open_store(address) as store:
        return [
            (item.id, {name: code.tobytes() for name, code in item.codes.items()}, dict(item.metadata))
            for item in store.get(store.ids())
        ]


@pytest.fixture(params=["folder", "postgres"])
def target(request, tmp_path) -> str:
    return str(tmp_path / "target") if request.param == "folder" else postgres_address(tmp_path)


def test_everything_arrives(tmp_path, target, monkeypatch):
    """Also after a push that broke off."""
    source = make_source(tmp_path / "source")
    steps = []

    def kill(done: int, total: int) -> None:
        steps.append((done, total))
        if len(steps) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(push, "_BATCH", 10)
    with pytest.raises(KeyboardInterrupt):
        push.push(source, target, kill)
    assert len(contents_of(target)) == 20
    assert push.push(source, target, kill) == push._Pushed(items=26, target_items=26)
    assert steps == [(0, 26), (10, 26), (20, 26), (0, 26), (10, 26), (20, 26), (26, 26)]
    assert contents_of(target) == contents_of(source)


@pytest.mark.parametrize("name", ["embedded", "postgres"])
def test_projections_arrive_where_they_can_be_kept(tmp_path, name):
    outputs = np.random.default_rng(0).normal(size=(5, 64))
    store = open_store(tmp_path / "projected", n_bits=64, projections=True)
    store.add([str(row) for row in range(5)], ch.codes.pack(outputs >= 0), projections=outputs)
    store.close()
    targets = {"embedded": str(tmp_path / "target"), "postgres": postgres_address(tmp_path)}
    assert not push.push(tmp_path / "projected", targets[name]).without_projections
    target = open_store(targets[name])
    assert target.search_projections(outputs, 1).ids == [[str(row)] for row in range(5)]
    target.close()


def test_what_cannot_be_pushed(tmp_path):
    source = make_source(tmp_path / "source")
    other = open_store(tmp_path / "other", n_bits=N_BITS, model="another")
    other.add(["a"], codes_of(1))
    other.close()
    for place, target, message in [
        (tmp_path, "x", "no store in a folder"),
        (source, str(source), "is the source"),
        (source, str(tmp_path / "other"), "codes of another model"),
        (source, "milvus+http://h:1/a-b", "no name of a collection"),
    ]:
        with pytest.raises(InputError, match=message):
            push.push(place, target)


def test_command(tmp_path, capsys):
    source, target = make_source(tmp_path / "source"), str(tmp_path / "target")
    push_command(source, target, as_json=True)
    moved = {"target": target, "items": 26, "target_items": 26, "without_projections": False}
    assert json.loads(capsys.readouterr().out) == moved
    push_command(source, target, as_json=False)
    assert capsys.readouterr().out == f"26 items of {source} are in {target}; it holds 26\n"
