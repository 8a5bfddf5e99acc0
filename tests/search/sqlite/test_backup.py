"""Copies of stores that others write to."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import channelhash as ch
from channelhash.data.records import Records
from channelhash.models import MODELS, load_model
from channelhash.search.sqlite.check import backup_store, check_store
from refusals import check_refusal

# Adds batches until it is killed; those whose number is printed are committed.
WRITER = """
import sys
import numpy as np
import channelhash as ch

store = ch.open_store(sys.argv[1], n_bits=16)
for batch in range(10_000):
    ids = [f"{batch:05d}-{row}" for row in range(20)]
    store.add(ids, {"image": np.full((20, 2), batch % 251, np.uint8)}, metadata=[{"batch": batch}] * 20)
    print(batch, flush=True)
"""


def small_store(folder: Path) -> ch.Store:
    store = ch.open_store(folder, n_bits=16)
    codes = np.arange(20, dtype=np.uint8).reshape(10, 2)
    store.add([f"a{i}" for i in range(10)], codes, metadata=[{"labels": ["dog"], "year": i} for i in range(10)])
    return store


def test_a_backup_is_a_store_with_the_same_answers(tmp_path):
    store = small_store(tmp_path / "a")
    records = Records(("a",), {"text": ("a dog",)}, np.ones((1, 1), dtype=bool), ("any",))
    model = MODELS["small"].create(records, 16, text_width=4, hidden=[4], min_count=1)
    model.save_pretrained(tmp_path / "a" / "model")
    assert backup_store(tmp_path / "a", tmp_path / "deep" / "b")[0] == 10  # while the store is open
    store.delete(["a3"])
    with ch.open_store(tmp_path / "deep" / "b") as copy:
        assert copy.get(copy.ids())[3].metadata == {"labels": ["dog"], "year": 3}
        found = copy.search(np.array([[6, 7]], np.uint8), k=2, where="label = 'dog'")
        assert found.ids[0][0] == "a3"
        copy.add(["b"], np.array([[1, 2]], np.uint8))
    assert load_model(tmp_path / "deep" / "b").n_bits == 16
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["b"]
    assert check_store(tmp_path / "deep" / "b") == []


@pytest.mark.parametrize("rounds", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_a_backup_while_another_process_writes_is_what_was_committed_first(tmp_path, rounds):
    small_store(tmp_path / "a").close()
    writer = subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / "a"], stdout=subprocess.PIPE, text=True)
    assert writer.stdout
    try:
        for number in range(rounds):
            committed = int(writer.stdout.readline())
            target = tmp_path / f"b{number}"
            done = backup_store(tmp_path / "a", target)
            with ch.open_store(target) as copy:
                items = copy.get(copy.ids("batch >= 0"))
            batches = len(items) // 20
            assert done[0] == len(items) + 10 == batches * 20 + 10
            assert batches > committed
            rows = sorted(range(20), key=str)  # as ids are sorted
            assert [item.id for item in items] == [f"{batch:05d}-{row}" for batch in range(batches) for row in rows]
            assert all(item.codes["image"][0] == item.metadata["batch"] % 251 for item in items)
            assert check_store(target) == []
            shutil.rmtree(target)
    finally:
        writer.kill()
        writer.wait()
    assert check_store(tmp_path / "a") == []


def test_nothing_is_left_of_a_backup_that_is_refused(tmp_path):
    small_store(tmp_path / "a").close()
    check_refusal("lies in the store", backup_store, tmp_path / "a", tmp_path / "a" / "c")
    with open(tmp_path / "a" / "items.sqlite", "r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    check_refusal("is damaged", backup_store, tmp_path / "a", tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
