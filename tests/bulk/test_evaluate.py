"""``channelhash evaluate --database`` part by part, in this process."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import channelhash as ch
from channelhash import bulk as sharded
from cli.test_evaluate_files import by_label, code_set, evaluated
from small_runs import assert_refused


def write_shards(folder: Path, codes: ch.CodeSet, ends: list[int]) -> Path:
    for number, (start, end) in enumerate(zip([0, *ends], [*ends, len(codes)], strict=True)):
        codes.take(range(start, end)).save(folder / f"codes-{number}.parquet")
    return folder


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path]:
    """Queries, and a folder of shards of unequal size, one of them empty."""
    code_set(15, 0).save(tmp_path / "q.parquet")
    return tmp_path / "q.parquet", write_shards(tmp_path / "shards", code_set(300, 1), [40, 40, 41, 170])


def without_order(tasks: dict) -> dict:
    """Without what counts by label do not know: the items, their order, and who is whose counterpart."""
    known = {task: {k: of[k] for k in of.keys() - {"codes_in_use"}} for task, of in by_label(tasks).items()}
    return {task: figures | {"map_in_order": None} for task, figures in known.items()}


def test_shards_have_bit_for_bit_the_figures_of_all_items_at_once(files, tmp_path, capsys, monkeypatch):
    query, shards = files
    monkeypatch.setattr(sharded, "_ROWS", 37)  # parts within a file
    wanted = without_order(ch.metrics.evaluate(code_set(15, 0), code_set(300, 1)))
    for database in (shards, shards / "*.parquet"):
        result = evaluated(capsys, "--query", query, "--database", database, "--out", tmp_path / "out")
        assert (result["tasks"], list(result["tasks"])) == (wanted, list(wanted))
        assert (result["items"], result["shards"], result["n_bits"]) == (300, 5, 20)
        assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == result
    code_set(300, 1).save(tmp_path / "one.parquet")
    one = evaluated(capsys, "--query", query, "--database", tmp_path / "one.parquet", "--engine", "local")
    assert without_order(one["tasks"]) == one["tasks"] == wanted


def test_workers_add_up_neighbouring_shards(files, monkeypatch):
    query, shards = files
    wanted = sharded.evaluate_shards(query, shards)
    seen = []
    monkeypatch.setattr(sharded, "_STEPS", 2)
    result = sharded.evaluate_shards(query, shards, progress=lambda done, total: seen.append((done, total)))
    assert (result, seen) == (wanted, [(2, 5), (5, 5)])


def test_shards_that_do_not_fit_are_refused(files, tmp_path, capsys):
    query, shards = files
    good = code_set(20, 3)
    for changed, says in (
        (code_set(20, 3, k=24), "codes-4.parquet: query codes have 20 bits, database codes 24"),
        (replace(good, labels=None), "codes-4.parquet: evaluation needs the labels"),
        (replace(good, codes={"image": good.codes["image"]}), "its shards are of different modalities"),
    ):
        changed.save(shards / "codes-4.parquet")
        assert_refused(capsys, "evaluate", "--query", query, "--database", shards, says=says)
    (shards / "codes-4.parquet").write_bytes((shards / "codes-3.parquet").read_bytes()[:-40])
    assert_refused(capsys, "evaluate", "--query", query, "--database", shards, says="perhaps truncated")
    (tmp_path / "none").mkdir()
    write_shards(tmp_path / "empty", good.take([]), [])
    refusals = {"none": "no .parquet files of codes in this folder", "x*.parquet": "no file has such a name"}
    refusals["empty"] = f"{tmp_path / 'empty'}: is empty"
    for name, says in refusals.items():
        assert_refused(capsys, "evaluate", "--query", query, "--database", tmp_path / name, says=says)
    assert_refused(capsys, "evaluate", tmp_path, "--engine", "ray", says="--engine: belongs to --query and --database")
