"""``channelhash evaluate`` on code files and on exports of other toolboxes."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

import channelhash as ch
from channelhash.cli.evaluate import _ConventionName
from channelhash.metrics.conventions import _CONVENTIONS
from small_runs import assert_refused, run_json, run_text


def code_set(n: int, seed: int, k: int = 20, model: str = "") -> ch.CodeSet:
    """Codes that carry the labels plus noise."""
    random = np.random.default_rng(seed)
    labels = random.random((n, 5)) < 0.4
    weights = np.random.default_rng(99).normal(size=(5, k))
    outputs = {
        name: (labels - 0.4) @ weights + random.normal(size=(n, k)) for name in ("image", "text")
    }
    codes = {name: ch.codes.pack(ch.codes.binarize(values)) for name, values in outputs.items()}
    return ch.CodeSet([str(i) for i in range(n)], codes, labels, k, model=model)


def signs(codes: ch.CodeSet, modality: str) -> np.ndarray:
    return np.where(ch.codes.unpack(codes.codes[modality], codes.n_bits), 1.0, -1.0)


@pytest.fixture
def files(tmp_path) -> dict[str, Path]:
    """The same codes as two Parquet files and, of one task and of four, as other toolboxes write
    them.
    """
    query, database = code_set(15, 0), code_set(120, 1)
    paths = {name: tmp_path / f"{name}.parquet" for name in ("query", "database")}
    query.save(paths["query"])
    database.save(paths["database"])
    labels = query.labels.astype(float), database.labels.astype(float)
    plain = {
        "B_q": signs(query, "image"),
        "B_r": signs(database, "text"),
        "L_q": labels[0],
        "L_r": labels[1],
    }
    both = {f"{side}_{short}": signs(codes, modality)
            for side, codes in (("q", query), ("r", database))
            for short, modality in (("img", "image"), ("txt", "text"))}  # fmt: skip
    paths |= {
        "plain": tmp_path / "plain.mat",
        "both": tmp_path / "both.mat",
        "npz": tmp_path / "plain.npz",
    }
    savemat(paths["plain"], plain)
    savemat(paths["both"], both | {"q_l": labels[0], "r_l": labels[1]})
    np.savez(paths["npz"], **{name: values > 0 for name, values in plain.items()})
    return paths


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict:
    return run_json(capsys, "evaluate", *arguments)


def by_label(tasks: dict) -> dict:
    """The scores by label: an export has no ids by which to know a query's counterpart."""
    by_pair = ("recall_at", "median_rank", "recall_items")
    return {
        task: {key: value for key, value in scores.items() if key not in by_pair}
        for task, scores in tasks.items()
    }


def test_the_same_codes_have_the_same_figures_in_every_file(files, capsys):
    parquet = evaluated(capsys, "--query", files["query"], "--database", files["database"])
    assert parquet["n_bits"] == 20
    assert parquet["tasks"] == ch.metrics.evaluate(code_set(15, 0), code_set(120, 1))
    tasks = by_label(parquet["tasks"])
    one = tasks["image->text"]
    assert one["map_tie_aware"] > one["chance"] + 0.1
    assert by_label(evaluated(capsys, "--codes", files["both"])["tasks"]) == tasks
    named = evaluated(capsys, "--codes", files["plain"], "--task", "image->text")
    assert named["tasks"] == {"image->text": one}
    for name in ("plain", "npz"):
        assert evaluated(capsys, "--codes", files[name])["tasks"] == {"query->database": one}


@pytest.mark.parametrize(
    "source", [["--codes", "both"], ["--query", "query", "--database", "database"]]
)
def test_figures_and_plots_go_into_the_folder_that_is_named(files, tmp_path, capsys, source):
    arguments = [files.get(word, word) for word in source]
    before = sorted(tmp_path.iterdir())
    result = evaluated(capsys, *arguments)
    assert sorted(tmp_path.iterdir()) == before  # nothing is written that was not asked for
    shown = run_text(capsys, "evaluate", *arguments, "--out", tmp_path / "out")
    assert all(task in shown for task in ("image → text", "text → text", "mAP tie-aware"))
    assert json.loads((tmp_path / "out" / "metrics.json").read_text()) == result
    plots = ["distances.png", "precision-recall.png", "radius.png"]
    assert sorted(path.name for path in (tmp_path / "out" / "plots").iterdir()) == plots


def test_an_export_with_names_of_its_own_is_read_with_array(files, tmp_path, capsys):
    with np.load(files["npz"]) as arrays:
        own = {name.replace("B_q", "HQ").replace("B_r", "HR"): arrays[name] for name in arrays}
    np.savez(tmp_path / "own.npz", **own)
    own = ["--codes", tmp_path / "own.npz"]
    says = "lacks B_q and B_r; it has HQ, HR, L_q, L_r. --array NAME=ARRAY"
    assert_refused(capsys, "evaluate", *own, says=says)
    renamed = evaluated(capsys, *own, "--array", "B_q=HQ", "--array", "B_r=HR")
    assert renamed["tasks"] == evaluated(capsys, "--codes", files["npz"])["tasks"]
    assert_refused(
        capsys, "evaluate", *own, "--array", "B_q", says="--array B_q: write it as NAME=ARRAY"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("", "give one of a run's folder; --query and --database; --codes. Given: none"),
        ("{folder} {codes}", "Given: a run's folder; --codes"),
        ("{query} {database} {codes}", "Given: --query and --database; --codes"),
        ("{query}", "--query and --database go together"),
        ("{database}", "--query and --database go together"),
        ("{codes} --split test", "--split: belongs to a run's folder, not to --codes"),
        ("{codes} --leak-free", "--leak-free: belongs to a run's folder"),
        ("{query} {database} --checkpoint best", "--checkpoint: belongs to a run's folder"),
        (
            "{query} {database} --task image->text",
            "--task: belongs to --codes, not to --query and --database",
        ),
        ("{folder} --array B_q=x", "--array: belongs to --codes, not to a run's folder"),
        ("{codes} --out {file}", "--out {file}: is a file; name a folder"),
        ("--query {npz} {database}", "{npz}: is no Parquet file; `evaluate --codes`"),
        ("{folder} --out {folder}", "--out: a run's scores and plots go into its own folder"),
        ("--codes {export} --out {out}", "{export}: none of the 3 queries has a relevant item"),
    ],
)
def test_what_cannot_be_told_apart_or_does_not_belong_is_refused(
    files, tmp_path, capsys, words, says
):
    signs = {"B_q": np.ones((3, 8)), "B_r": -np.ones((9, 8))}
    savemat(tmp_path / "e.mat", signs | {"L_q": np.zeros((3, 2)), "L_r": np.ones((9, 2))})
    names = {
        "folder": tmp_path,
        "file": files["query"],
        "npz": files["npz"],
        "export": tmp_path / "e.mat",
        "out": tmp_path / "out",
        "codes": f"--codes {files['plain']}",
        "query": f"--query {files['query']}",
        "database": f"--database {files['database']}",
    }
    arguments = words.format(**names).split()
    assert_refused(capsys, "evaluate", *arguments, says=says.format(**names))
    assert not names["out"].exists()


QUERY = code_set(6, 0)
DATABASE = code_set(20, 1)
UNLIKE = replace(QUERY, labels=np.zeros_like(QUERY.labels))
NARROW = replace(DATABASE, labels=DATABASE.labels[:, :4])


@pytest.mark.parametrize(
    ("query", "database", "says"),
    [
        (QUERY, code_set(20, 1, k=24), "{both}query codes have 20 bits, database codes 24"),
        (
            QUERY,
            replace(DATABASE, labels=None),
            "{both}evaluation needs the labels of queries and database",
        ),
        (QUERY, NARROW, "{both}query labels have 5 columns, database labels 4"),
        (
            code_set(6, 0, model="a"),
            code_set(20, 1, model="b"),
            "{both}query and database codes were made by diff",
        ),
        (UNLIKE, DATABASE, "{both}none of the 6 queries has a relevant item"),
        (QUERY, DATABASE.take([]), "{folder}/d.parquet: is empty"),
        (QUERY.take([]), DATABASE, "{folder}/q.parquet: is empty"),
    ],
    ids=["length", "no labels", "columns", "models", "unlike", "no items", "no queries"],
)
def test_code_files_that_do_not_fit_together_are_refused(tmp_path, capsys, query, database, says):
    query.save(tmp_path / "q.parquet")
    database.save(tmp_path / "d.parquet")
    arguments = ["--query", tmp_path / "q.parquet", "--database", tmp_path / "d.parquet"]
    both = f"{tmp_path / 'q.parquet'} and {tmp_path / 'd.parquet'}: "
    says = says.format(both=both, folder=tmp_path)
    assert_refused(capsys, "evaluate", *arguments, "--out", tmp_path / "out", says=says)
    assert not (tmp_path / "out").exists()


def test_conventions_of_other_toolboxes_are_printed_beside_the_scores(files, capsys, tmp_path):
    assert [name.value for name in _ConventionName] == list(_CONVENTIONS)
    sides = ["--query", files["query"], "--database", files["database"]]
    plain, both = (
        evaluated(capsys, *sides),
        evaluated(capsys, *sides, "--convention", "sch", "--convention", "qinlab"),
    )
    for task, report in both["tasks"].items():
        conventions = report.pop("conventions")
        assert report == plain["tasks"][task]
        names = {name: list(figures) for name, figures in conventions.items()}
        assert names == {name: ["map", "map@50"] for name in ("sch", "qinlab")}
        share = report["queries"] / (report["queries"] + report["skipped"])
        assert conventions["sch"]["map"]["in_order"] == pytest.approx(
            report["map_in_order"] * share
        )
        assert conventions["qinlab"]["map"]["lower"] == pytest.approx(report["map_lower"] * share)
    shards = tmp_path / "shards"
    shards.mkdir()
    shutil.copy(files["database"], shards / "shard-000000.parquet")
    of_shards = evaluated(
        capsys, "--query", files["query"], "--database", shards, "--convention", "hyp2"
    )
    assert of_shards["tasks"]["image->text"]["conventions"]["hyp2"]["map"]["in_order"] is None
    printed = run_text(capsys, "evaluate", "--codes", files["plain"], "--convention", "sch")
    assert all(row in printed for row in ("sch: mAP@50, stable sort", "sch: mAP, any sort"))
    replace(code_set(4, 0), labels=None).save(tmp_path / "codes.parquet")
    sides = ["--query", tmp_path / "codes.parquet", "--database", tmp_path / "codes.parquet"]
    assert_refused(capsys, "evaluate", *sides, "--convention", "sch", says="its mAP needs labels")


def test_items_that_search_themselves_are_left_out_of_files_shards_and_exports(tmp_path, capsys):
    codes = code_set(30, 0)
    codes.save(tmp_path / "codes.parquet")
    shards = tmp_path / "shards"
    shards.mkdir()
    for number, rows in enumerate((range(11), range(11, 30))):
        codes.take(rows).save(shards / f"shard-{number:06}.parquet")
    whole = evaluated(
        capsys, "--query", tmp_path / "codes.parquet", "--database", tmp_path / "codes.parquet"
    )
    parts = evaluated(capsys, "--query", tmp_path / "codes.parquet", "--database", shards)
    signs = np.unpackbits(codes.codes["image"], axis=1)[:, : codes.n_bits]
    np.savez(tmp_path / "e.npz", B_q=signs, B_r=signs, L_q=codes.labels, L_r=codes.labels)
    export = evaluated(capsys, "--codes", tmp_path / "e.npz", "--task", "image->image")
    reports = [result["tasks"]["image->image"] for result in (whole, parts, export)]
    for report in reports:
        assert report["own_left_out"] == 30
        assert report["map_tie_aware"] == reports[0]["map_tie_aware"]
    assert "30 times a query was in the database itself" in run_text(
        capsys, "evaluate", "--codes", tmp_path / "e.npz"
    )
