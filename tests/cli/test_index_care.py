"""``channelhash index check``, ``repair`` and ``backup``."""

import json
from pathlib import Path

import numpy as np
import pytest

import channelhash as ch
from small_runs import run_command, run_json


@pytest.fixture
def store(tmp_path) -> Path:
    opened = ch.open_store(tmp_path / "a.store", n_bits=16)
    random = np.random.default_rng(0)
    ids = [f"item {i}" for i in range(400)]
    codes = random.integers(0, 256, (400, 2), dtype=np.uint8)
    opened.add(ids, {"image": codes}, metadata=[{"text": "a dog on a beach" * 10}] * 400)
    opened.make_snapshot()
    opened.close()
    return tmp_path / "a.store"


def damage_an_item(store: Path) -> None:
    content = (store / "items.sqlite").read_bytes()
    (store / "items.sqlite").write_bytes(content.replace(b"a dog on", b"a cat on", 1))


def test_a_whole_store_is_checked(store, capsys):
    assert run_command("index", "check", store) == 0
    assert capsys.readouterr().out == f"{store} is whole\n"
    told = run_json(capsys, "index", "check", store)
    assert told == {"store": str(store), "ok": True, "damaged": []}


def test_damage_is_found_and_repaired_but_for_what_is_lost(store, capsys):
    damage_an_item(store)
    assert run_command("index", "check", store) == 1
    out, err = capsys.readouterr()
    assert "items.sqlite: is not as it was when the store was closed" in out
    assert "the item is damaged" in out
    assert f"channelhash index repair {store}" in err
    assert run_command("index", "check", store, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["ok"]
    assert {"where": "items.sqlite", "what": "is not as it was when the store was closed"} in told["damaged"]
    assert run_command("index", "repair", store) == 0
    out = capsys.readouterr().out
    assert "lost: item " in out
    assert "it holds 399 items" in out
    assert run_command("index", "check", store) == 0
    assert len(ch.open_store(store)) == 399


def test_a_lost_snapshot_is_made_anew(store, capsys):
    next(store.glob("snapshot-*/image/names.npy")).unlink()
    assert run_command("index", "check", store) == 1
    assert "names.npy: is missing" in capsys.readouterr().out
    done = run_json(capsys, "index", "repair", store)
    assert len(done["damaged"]) == 1
    assert done["lost"] == []
    assert done["items"] == 400
    assert run_command("index", "check", store) == 0


def test_a_damaged_model_is_found(store, capsys):
    (store / "model").mkdir()
    (store / "model" / "config.json").write_text("{")
    assert run_command("index", "check", store) == 1
    out = capsys.readouterr().out
    assert "model: config.json: " in out
    assert "model: model.safetensors: is missing" in out


def test_a_backup_is_a_store(store, tmp_path, capsys):
    assert run_command("index", "backup", store, tmp_path / "copy") == 0
    assert "400 items" in capsys.readouterr().out
    assert run_command("index", "check", tmp_path / "copy") == 0
    assert run_command("index", "backup", store, tmp_path / "copy") == 2
    assert "is there already" in capsys.readouterr().err
    done = run_json(capsys, "index", "backup", store, tmp_path / "second")
    assert done["items"] == 400
    assert done["bytes"] > 0


@pytest.mark.parametrize("command", ["check", "repair", "backup"])
def test_only_stores_in_folders_are_cared_for(command, tmp_path, capsys):
    more = [tmp_path / "copy"] * (command == "backup")
    for address in ("milvus+http://localhost:19530/photos", tmp_path / "none", tmp_path):
        assert run_command("index", command, address, *more) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1
        assert "Traceback" not in err
