"""Moving items to another store, also when that breaks off, and to FAISS files, which FAISS reads, and back."""

import json
import sys
from pathlib import Path
from unittest.mock import Mock

import faiss
import numpy as np
import pyarrow.parquet as pq
import pytest
from tests.search.contract import N_BITS, random_codes
from tests.search.servers import postgres_address

import channelhash as ch
from channelhash.cli.index import _export_faiss, _import_faiss, _push
from channelhash.errors import InputError
from channelhash.search import open_store, transfer
from channelhash.search.transfer import export_faiss, import_faiss, items_file
from refusals import check_refusal


def make_source(folder: Path, n: int = 25) -> Path:
    """Images, of which some have texts, and texts alone."""
    with open_store(folder, n_bits=N_BITS, model="m") as store:
        ids = [f"it's {row}" for row in range(n)]
        store.add(ids, random_codes(n), metadata=[{"year": row, "labels": ["dog"] * (row % 2)} for row in range(n)])
        store.add([*ids[:7], "only words"], random_codes(8, seed=1), "text")
    return folder


def contents_of(address: str | Path) -> list[tuple[str, dict[str, bytes], dict[str, object]]]:
    with open_store(address) as store:
        items = store.get(store.ids())
    return [(item.id, {m: code.tobytes() for m, code in item.codes.items()}, dict(item.metadata)) for item in items]


@pytest.fixture(params=["folder", "postgres"])
def target(request, tmp_path) -> str:
    return str(tmp_path / "target") if request.param == "folder" else postgres_address(tmp_path)


def test_everything_arrives(tmp_path, target, monkeypatch):
    """Also after a push that broke off."""
    source = make_source(tmp_path / "source")
    progress = Mock(side_effect=[None, None, KeyboardInterrupt, *[None] * 4])
    monkeypatch.setattr(transfer, "_BATCH", 10)
    with pytest.raises(KeyboardInterrupt):
        transfer.push(source, target, progress)
    assert len(contents_of(target)) == 20
    assert transfer.push(source, target, progress) == transfer._Pushed(items=26, target_items=26)
    assert [step.args for step in progress.call_args_list] == [(n, 26) for n in (0, 10, 20, 0, 10, 20, 26)]
    assert contents_of(target) == contents_of(source)


def test_projections_arrive_where_they_can_be_kept(tmp_path, target):
    outputs = np.random.default_rng(0).normal(size=(5, 64))
    with open_store(tmp_path / "projected", n_bits=64, projections=True) as store:
        store.add([str(row) for row in range(5)], ch.codes.pack(outputs >= 0), projections=outputs)
    assert not transfer.push(tmp_path / "projected", target).without_projections
    with open_store(target) as store:
        assert store.search_projections(outputs, 1).ids == [[str(row)] for row in range(5)]


def test_what_cannot_be_pushed(tmp_path):
    source = make_source(tmp_path / "source")
    with open_store(tmp_path / "other", n_bits=N_BITS, model="another") as other:
        other.add(["a"], random_codes(1))
    check_refusal("no store in a folder", transfer.push, tmp_path, "x")
    check_refusal("is the source", transfer.push, source, str(source))
    check_refusal("codes of another model", transfer.push, source, str(tmp_path / "other"))
    check_refusal("no name of a collection", transfer.push, source, "milvus+http://h:1/a-b")


@pytest.fixture
def store(tmp_path):
    with open_store(make_source(tmp_path / "store")) as opened:
        yield opened


def test_faiss_finds_the_same(store, tmp_path):
    file = tmp_path / "codes.faiss"
    assert export_faiss(store, file) == 25
    index = faiss.read_index_binary(str(file))
    assert isinstance(index, faiss.IndexBinaryIDMap2)
    assert (index.d, index.ntotal) == (16, 25)
    listed = pq.read_table(items_file(file))
    ids = dict(zip(*(listed.column(name).to_pylist() for name in ("number", "id")), strict=True))
    queries = random_codes(5, seed=2)
    distances, numbers = index.search(queries, 25)
    found = store.search(queries, 25)
    for row in range(5):
        assert distances[row].tolist() == found.distances[row].tolist()
        pairs = sorted((distance, ids[number]) for distance, number in zip(distances[row], numbers[row], strict=True))
        assert [name for _, name in pairs] == found.ids[row]


def test_there_and_back(store, tmp_path):
    file = tmp_path / "codes.faiss"
    steps = []
    assert export_faiss(store, file, "text", lambda done, total: steps.append((done, total))) == 8
    assert steps == [(0, 26), (26, 26)]
    assert import_faiss(file, str(tmp_path / "new")) == 8
    with open_store(tmp_path / "new") as back:
        assert (back.n_bits, back.model, back.modalities) == (N_BITS, "m", ("text",))
        for item, former in zip(back.get(back.ids()), store.get(back.ids()), strict=True):
            np.testing.assert_array_equal(item.codes["text"], former.codes["text"])
            assert item.metadata == former.metadata


@pytest.mark.parametrize("wrap", [faiss.IndexBinaryIDMap, faiss.IndexBinaryIDMap2, None])
def test_files_made_elsewhere(tmp_path, wrap):
    codes = np.random.default_rng(0).integers(0, 256, (4, 2), dtype=np.uint8)
    flat = faiss.IndexBinaryFlat(16)
    if wrap:
        index = wrap(flat)
        index.add_with_ids(codes, np.array([7, 3, 2**40, 0]))
    else:
        index = flat
        index.add(codes)
    faiss.write_index_binary(index, str(tmp_path / "their.index"))
    import_faiss(tmp_path / "their.index", str(tmp_path / "new"), "image")
    with open_store(tmp_path / "new") as store:
        names = ["7", "3", str(2**40), "0"] if wrap else ["0", "1", "2", "3"]
        assert store.n_bits == 16
        np.testing.assert_array_equal(np.stack([item.codes["image"] for item in store.get(names)]), codes)


def test_files_made_elsewhere_that_do_not_fit_are_refused(store, tmp_path):
    index = faiss.IndexBinaryIDMap(faiss.IndexBinaryFlat(16))
    index.add_with_ids(random_codes(3), np.array([7, 5, 7]))
    faiss.write_index_binary(index, str(tmp_path / "their.index"))
    with pytest.raises(InputError, match=r"their\.index: ids: '7' \(row 2\) occurs twice"):
        import_faiss(tmp_path / "their.index", str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    export_faiss(store, tmp_path / "codes.faiss")
    listed = pq.read_table(items_file(tmp_path / "codes.faiss"))
    for name, message in (("number", "lists other numbers"), ("id", "it's 0\" .* occurs twice")):
        values = listed.column(name).to_pylist()
        values[1] = values[0]
        wrong = listed.set_column(listed.column_names.index(name), name, [values])
        pq.write_table(wrong, items_file(tmp_path / "codes.faiss"))
        check_refusal(message, import_faiss, tmp_path / "codes.faiss", str(tmp_path / "new"))
    index = faiss.IndexBinaryFlat(16)
    index.add(random_codes(2))
    faiss.write_index_binary(index, str(tmp_path / "their.index"))
    store.close()
    import_faiss(tmp_path / "their.index", str(tmp_path / "store"))
    index.add(np.full((1, 2), 255, np.uint8))
    faiss.write_index_binary(index, str(tmp_path / "longer.index"))
    check_refusal("bits past the 12th", import_faiss, tmp_path / "longer.index", str(tmp_path / "store"))


def test_what_cannot_be_read_or_written(store, tmp_path, monkeypatch):
    file = tmp_path / "codes.faiss"
    export_faiss(store, file)
    (tmp_path / "text").write_text("no index")
    faiss.write_index_binary(faiss.IndexBinaryHNSW(16, 4), str(tmp_path / "hnsw"))
    (tmp_path / "damaged.faiss").write_bytes(file.read_bytes())
    items_file(tmp_path / "damaged.faiss").write_bytes(items_file(file).read_bytes()[:100])
    for name, message in {
        "nothing": "no such FAISS file", "text": "not a readable FAISS file", "hnsw": "holds an IndexBinaryHNSW",
        "damaged.faiss": "damaged, or not written by channelhash",
    }.items():  # fmt: skip
        check_refusal(message, import_faiss, tmp_path / name, str(tmp_path / "new"))
    open_store(tmp_path / "model", n_bits=N_BITS, model="another").make()
    check_refusal("another model", import_faiss, file, str(tmp_path / "model"))
    with pytest.raises(InputError, match="holds no codes to export"):
        export_faiss(open_store(tmp_path / "empty", n_bits=8), tmp_path / "empty.faiss")
    assert not (tmp_path / "empty.faiss").exists()
    monkeypatch.setitem(sys.modules, "faiss", None)
    check_refusal(r"pip install 'channelhash\[faiss\]'", export_faiss, store, tmp_path / "codes.faiss")


def test_commands(tmp_path, capsys):
    source, target, file = make_source(tmp_path / "source"), str(tmp_path / "target"), tmp_path / "codes.faiss"
    _push(source, target, as_json=True)
    moved = {"target": target, "items": 26, "target_items": 26, "without_projections": False}
    assert json.loads(capsys.readouterr().out) == moved
    _push(source, target, as_json=False)
    assert capsys.readouterr().out == f"26 items of {source} are in {target}; it holds 26\n"
    _export_faiss(str(source), file, None, as_json=True)
    assert json.loads(capsys.readouterr().out) == {"out": str(file), "items_file": str(items_file(file)), "items": 25}
    _import_faiss(str(tmp_path / "new"), file, None, as_json=False)
    assert capsys.readouterr().out == f"25 codes of {file} are in {tmp_path / 'new'}\n"
