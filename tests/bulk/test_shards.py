"""``channelhash encode … --out FOLDER`` and ``evaluate --database``, part by part, in this
process.
"""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import channelhash as ch
from bulk import made_inputs
from bulk.dying import SHARD
from bulk.made_inputs import N, feature_model, picture_model, write_feature_parquet
from channelhash import bulk
from channelhash.bulk import _ShardEncoder
from channelhash.bulk.jobs import open_job, shard_files, shard_path
from channelhash.data.table import load_table
from channelhash.errors import JobError
from channelhash.models.hash_model import encode_records
from channelhash.utils.locks import locked
from cli.test_evaluate_files import by_label, code_set, evaluated
from picture_runs import write_pictures
from refusals import check_refusal
from small_runs import assert_refused, run_json


def encoded(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    return run_json(capsys, "encode", *arguments)


def by_eight(model: Path, data: Path, out: Path) -> tuple[object, ...]:
    """The arguments that encode into shards of eight items."""
    return model, "--data", data, "--out", out, "--shard-items", 8


def content(folder: Path) -> dict[str, bytes]:
    """What a job leaves for its reader: everything but its own folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def joined(out: Path) -> ch.CodeSet:
    return ch.CodeSet.join([ch.CodeSet.load(path) for path in shard_files(out)])


@pytest.fixture
def features(tmp_path) -> tuple[Path, Path]:
    """A model, and Parquet files of features for it."""
    for part in range(2):
        write_feature_parquet(tmp_path / "in" / f"{part}.parquet", name=f"{part}-")
    return feature_model(tmp_path / "model"), tmp_path / "in"


def test_shards_together_are_the_codes_of_all_items(features, tmp_path, capsys):
    model, data = features
    result = encoded(capsys, *by_eight(model, data, tmp_path / "out"))
    assert result == {"out": str(tmp_path / "out"), "shards": 10, "items": 2 * N, "bad": 0, "n_bits": 12,
                      "modalities": ["image", "text"], "done_before": 0}  # fmt: skip
    shards = [ch.CodeSet.load(path) for path in shard_files(tmp_path / "out")]
    assert {len(shard) for shard in shards} == {8}
    codes = ch.CodeSet.join(shards)
    assert codes.ids == tuple(f"{part}-{i:03d}" for part in range(2) for i in range(N))
    loaded = ch.load_model(model)
    for name, rows in made_inputs.feature_rows().items():
        np.testing.assert_array_equal(codes.codes[name], np.tile(loaded.encode(name, rows), (2, 1)))
    assert codes.label_names == ("all", "even")
    np.testing.assert_array_equal(codes.labels, [[True, i % 2 == 0] for i in range(N)] * 2)
    assert codes.model == loaded.fingerprint()


def test_pictures_in_a_folder_in_a_table_and_in_tar_files_have_the_codes_of_the_one_file(
    tmp_path, capsys, monkeypatch
):
    table = write_pictures(tmp_path / "in", 12)
    model = picture_model(tmp_path / "model")
    wanted = encode_records(ch.load_model(model), load_table(table))
    items = list(made_inputs.picture_items(table).items())
    for number in range(3):
        made_inputs.write_tar(
            tmp_path / "tars" / f"{number}.tar", dict(items[4 * number : 4 * number + 4])
        )
    encoded(capsys, model, "--data", tmp_path / "tars", "--out", tmp_path / "from-tar")
    codes = joined(tmp_path / "from-tar")
    for name in ("ids", "label_names", "texts"):
        assert getattr(codes, name) == getattr(wanted, name)
    assert codes.images is None
    np.testing.assert_array_equal(codes.labels, wanted.labels)
    np.testing.assert_equal(codes.codes, wanted.codes)
    rows = [line.split(",") for line in table.read_text().splitlines()]
    pq.write_table(
        pa.table(dict(zip(rows[0], zip(*rows[1:], strict=True), strict=True))),
        tmp_path / "t.parquet",
    )
    monkeypatch.chdir(tmp_path)
    encoded(capsys, model, "--data", "t.parquet", "--root", "in", "--out", "from-table")
    wanted.save(tmp_path / "wanted.parquet")
    one = {"codes-000000.parquet": (tmp_path / "wanted.parquet").read_bytes(), "bad.jsonl": b""}
    assert content(tmp_path / "from-table") == one  # to the byte
    encoded(capsys, *by_eight(model, tmp_path / "in" / "images", tmp_path / "from-folder"))
    codes = joined(tmp_path / "from-folder")
    order = [codes.ids.index(f"{i}.png") for i in range(12)]
    np.testing.assert_array_equal(codes.take(order).codes["image"], wanted.codes["image"])
    assert codes.take(order).images == wanted.images


def test_bad_items_go_to_a_file_of_their_own(tmp_path, capsys):
    images = write_pictures(tmp_path / "in", 12).parent / "images"
    (tmp_path / "bad").mkdir()
    (images / "4.png").write_bytes(b"no picture")
    (images / "7.png").write_bytes((images / "7.png").read_bytes()[:300])
    (images / "9.png").write_bytes(b"")
    (images / "notes.txt").write_text("no picture")
    model = picture_model(tmp_path / "model", ("image",))
    result = encoded(capsys, model, "--data", images, "--out", tmp_path / "out", "--shard-items", 5)
    assert (result["shards"], result["items"], result["bad"]) == (3, 9, 3)
    bad = [json.loads(line) for line in (tmp_path / "out" / "bad.jsonl").read_text().splitlines()]
    places = [(line["item"], line["shard"][-9:]) for line in bad]
    assert places == [("4.png", "1.parquet"), ("7.png", "1.parquet"), ("9.png", "2.parquet")]
    assert bad[0]["reason"] == "not a readable picture (of no known format)"
    assert bad[1]["reason"].startswith("not a readable picture (")
    assert bad[2]["reason"] == f"empty picture {images / '9.png'}"
    assert sorted(joined(tmp_path / "out").ids) == sorted(
        f"{i}.png" for i in range(12) if i not in (4, 7, 9)
    )
    for number in (4, 7, 9):  # shards of nothing but bad items are empty
        shutil.move(images / f"{number}.png", tmp_path / "bad" / f"{number}.png")
    result = encoded(
        capsys, model, "--data", tmp_path / "bad", "--out", tmp_path / "none", "--shard-items", 2
    )
    assert (result["items"], result["bad"]) == (0, 3)
    assert [len(ch.CodeSet.load(path)) for path in shard_files(tmp_path / "none")] == [0, 0]


@pytest.mark.slow  # another process; an object store's job goes on in a quick test
def test_a_job_whose_process_was_killed_goes_on_and_redoes_nothing(features, tmp_path, capsys):
    model, data = features
    encoded(capsys, *by_eight(model, data, tmp_path / "whole"))
    out = tmp_path / "out"
    script = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from channelhash import bulk as shards
from bulk.dying import DyingEncoder
shards._ShardEncoder = DyingEncoder
shards.encode_bulk(Path({str(model)!r}), {str(data)!r}, Path({str(out)!r}), shard_items=8)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    before = {path.name: path.stat().st_ino for path in out.glob("codes-*.parquet")}
    assert len(before) == SHARD
    assert len(list(out.glob(".codes-*.tmp"))) == 1  # what it was writing
    evaluate = ("evaluate", "--query", out / "codes-000000.parquet", "--database", out)
    assert_refused(capsys, *evaluate, says=f"{10 - SHARD} of 10 shards are missing")
    result = encoded(capsys, *by_eight(model, data, out))
    assert result["done_before"] == SHARD
    assert content(out) == content(tmp_path / "whole")
    assert {name: (out / name).stat().st_ino for name in before} == before
    assert encoded(capsys, *by_eight(model, data, out))["done_before"] == 10


def test_another_model_or_input_is_refused(features, tmp_path, capsys):
    model, data = features
    out = tmp_path / "out"
    arguments = ["--data", data, "--out", out]
    encoded(capsys, model, *arguments)
    before = content(out)
    other = feature_model(tmp_path / "other", seed=1)
    says = f"{out}: holds a job with another model"
    assert_refused(capsys, "encode", other, *arguments, says=says)
    again = ("encode", model, *arguments)
    assert_refused(capsys, *again, "--shard-items", 9, says="another --shard-items (16384, now 9)")
    says = "another names, sizes and dates of the input files"
    (data / "1.parquet").unlink()
    assert_refused(capsys, *again, says=says)
    write_feature_parquet(data / "1.parquet", name="other")
    assert_refused(capsys, *again, says=says)
    assert content(out) == before


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("{model} --data {root}/none --out {root}/new", "none: no such folder or file"),
        (
            "{model} --data {data} --out {root}/taken",
            "taken: holds Parquet files, but no job/manifest.json",
        ),
        ("{model} --data {data} --out c.parquet --engine local", "--engine: is for shards"),
        ("{model} --data {data} --out {root}/new --skip-bad", "--skip-bad: bad items never stop"),
        ("{model} --data {data} --out {root}/new --engine ray", "pip install 'channelhash[ray]'"),
        (
            "{model} --data {data} --out {root}/new --workers 2",
            "--workers: belongs to --engine ray",
        ),
        (
            "{texts} --data {root}/pics/images --out {root}/new",
            "holds image, the model encodes text",
        ),
        (
            "{texts} --data {root}/pics/images --out {root}/new --root .",
            "--root: belongs to Parquet files",
        ),
    ],
)
def test_what_cannot_be_begun_leaves_nothing(features, tmp_path, capsys, monkeypatch, words, says):
    model, data = features
    monkeypatch.setitem(sys.modules, "ray", None)
    write_pictures(tmp_path / "pics", 2)
    texts = picture_model(tmp_path / "texts", ("text",))
    write_feature_parquet(tmp_path / "taken" / "x.parquet")
    places = {"model": model, "data": data, "texts": texts, "root": tmp_path}
    arguments = [word.format(**places) for word in words.split()]
    assert_refused(capsys, "encode", *arguments, says=says)
    assert not (tmp_path / "new" / "codes-000000.parquet").exists()


def test_a_folder_takes_one_job_at_a_time(features, tmp_path, capsys):
    model, data = features
    busy = tmp_path / "busy"
    with locked(busy / "job" / "lock"):
        says = f"{busy}: another process is encoding into this folder"
        assert_refused(capsys, "encode", *by_eight(model, data, busy), says=says)


def test_a_worker_that_sees_another_model_or_input_ends_the_job(features, tmp_path):
    model, data = features
    out, other = tmp_path / "out", feature_model(tmp_path / "other", seed=1)
    job, _ = open_job(ch.load_model(model), f"file://{data}", out, None, 8)
    check_refusal("for a worker, the job's is", _ShardEncoder, other, out, job)
    changed = replace(job, shards=(job.shards[0]._replace(items=9),))
    encode = _ShardEncoder(model, out, changed)
    check_refusal("had 9 items, now 8; it changed meanwhile", encode, 0, error=JobError)
    assert not shard_path(out, 0).exists()


def test_an_input_without_items_and_a_manifest_of_another_version_are_refused(
    features, tmp_path, capsys
):
    model, data = features
    empty = tmp_path / "empty"
    empty.mkdir()
    pq.write_table(pq.read_table(data / "0.parquet").slice(0, 0), empty / "0.parquet")
    no_items = ("encode", *by_eight(model, empty, tmp_path / "no"))
    assert_refused(capsys, *no_items, says="files hold no items")
    out = tmp_path / "out"
    encoded(capsys, model, "--data", data, "--out", out)
    manifest = out / "job" / "manifest.json"
    manifest.write_text(
        manifest.read_text().replace("channelhash bulk codes 2", "channelhash bulk codes 0")
    )
    says = "not a readable manifest (written by another version)"
    assert_refused(capsys, "encode", model, "--data", data, "--out", out, says=says)


def write_shards(folder: Path, codes: ch.CodeSet, ends: list[int]) -> Path:
    for number, (start, end) in enumerate(zip([0, *ends], [*ends, len(codes)], strict=True)):
        codes.take(range(start, end)).save(folder / f"codes-{number}.parquet")
    return folder


@pytest.fixture
def files(tmp_path) -> tuple[Path, Path]:
    """Queries, and a folder of shards of unequal size, one of them empty."""
    code_set(15, 0).save(tmp_path / "q.parquet")
    return tmp_path / "q.parquet", write_shards(
        tmp_path / "shards", code_set(300, 1), [40, 40, 41, 170]
    )


def without_order(tasks: dict) -> dict:
    """Without what counts by label do not know: the items, their order, and who is whose
    counterpart.
    """
    known = {
        task: {k: of[k] for k in of.keys() - {"codes_in_use"}}
        for task, of in by_label(tasks).items()
    }
    return {task: figures | {"map_in_order": None} for task, figures in known.items()}


def test_shards_have_bit_for_bit_the_figures_of_all_items_at_once(
    files, tmp_path, capsys, monkeypatch
):
    query, shards = files
    monkeypatch.setattr(bulk, "_ROWS", 37)  # parts within a file
    wanted = without_order(ch.metrics.evaluate(code_set(15, 0), code_set(300, 1)))
    for database in (shards, shards / "*.parquet"):
        result = evaluated(
            capsys, "--query", query, "--database", database, "--out", tmp_path / "out"
        )
        assert (result["tasks"], list(result["tasks"])) == (wanted, list(wanted))
        assert (result["items"], result["shards"], result["n_bits"]) == (300, 5, 20)
        assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == result
    code_set(300, 1).save(tmp_path / "one.parquet")
    one = evaluated(
        capsys, "--query", query, "--database", tmp_path / "one.parquet", "--engine", "local"
    )
    assert without_order(one["tasks"]) == one["tasks"] == wanted


def test_workers_add_up_neighbouring_shards(files, monkeypatch):
    query, shards = files
    wanted = bulk.evaluate_shards(query, shards)
    seen = []
    monkeypatch.setattr(bulk, "_LOCAL_TASKS", 2)
    result = bulk.evaluate_shards(
        query, shards, progress=lambda done, total: seen.append((done, total))
    )
    assert (result, seen) == (wanted, [(2, 5), (5, 5)])


def test_shards_that_do_not_fit_are_refused(files, tmp_path, capsys):
    query, shards = files
    good = code_set(20, 3)
    for changed, says in (
        (code_set(20, 3, k=24), "codes-4.parquet: query codes have 20 bits, database codes 24"),
        (replace(good, labels=None), "codes-4.parquet: evaluation needs the labels"),
        (
            replace(good, codes={"image": good.codes["image"]}),
            "its shards are of different modalities",
        ),
    ):
        changed.save(shards / "codes-4.parquet")
        assert_refused(capsys, "evaluate", "--query", query, "--database", shards, says=says)
    (shards / "codes-4.parquet").write_bytes((shards / "codes-3.parquet").read_bytes()[:-40])
    assert_refused(
        capsys, "evaluate", "--query", query, "--database", shards, says="perhaps truncated"
    )
    (tmp_path / "none").mkdir()
    write_shards(tmp_path / "empty", good.take([]), [])
    refusals = {
        "none": "no .parquet files of codes in this folder",
        "x*.parquet": "no file has such a name",
    }
    refusals["empty"] = f"{tmp_path / 'empty'}: is empty"
    for name, says in refusals.items():
        assert_refused(
            capsys, "evaluate", "--query", query, "--database", tmp_path / name, says=says
        )
    assert_refused(
        capsys,
        "evaluate",
        tmp_path,
        "--engine",
        "ray",
        says="--engine: belongs to --query and --database",
    )
