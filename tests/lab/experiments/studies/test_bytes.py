"""Equal bytes: similarities against the searches they stand for, two stages against literal ones, the experiment."""

import json

import numpy as np
import pytest
import yaml

from channelhash.lab.experiments.compressed_items import second_stage, two_stages
from channelhash.lab.experiments.compressions import COMPRESSIONS, common_space
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.runner import Execution
from channelhash.lab.experiments.studies.bytes import LEARNED, run_bytes
from lab.experiments.made_grids import assert_made_again, named_grid
from small_runs import assert_refused, run_command, write_features

ROWS = np.arange(40)


@pytest.fixture(scope="module")
def vectors():
    random = np.random.default_rng(0)
    meaning = random.normal(size=(300, 16))
    features = {
        name: meaning @ random.normal(size=(16, width)) + 0.3 * random.normal(size=(300, width))
        for name, width in (("image", 20), ("text", 16))
    }
    return common_space(features, np.arange(200))


@pytest.mark.parametrize("n_bytes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("method", COMPRESSIONS)
def test_similarities_rank_as_the_search_does_and_the_bytes_are_kept(vectors, method, n_bytes):
    compressed = COMPRESSIONS[method](vectors, np.arange(200), n_bytes, 0)
    fits = {"RaBitQ": n_bytes > 8, "float32": n_bytes >= 4, "CCA-ITQ": n_bytes <= 2, "ITQ": n_bytes <= 2}
    if not fits.get(method, True):
        assert compressed is None
        return
    assert compressed.n_bytes <= n_bytes
    assert compressed.n_bytes == n_bytes or method == "RaBitQ"  # which has no more to keep
    similarities = compressed.similarities("text", "image", ROWS)
    assert similarities.shape == (40, 300)
    nearest = compressed.nearest("text", "image", ROWS, 10)
    found = np.take_along_axis(similarities, nearest, axis=1)
    np.testing.assert_array_equal(found, -np.sort(-similarities, axis=1)[:, :10])


def test_the_common_space_knows_nothing_of_rows_that_were_not_trained_on():
    random = np.random.default_rng(1)
    features = {"image": random.normal(size=(50, 6)), "text": random.normal(size=(50, 5))}
    changed = {name: np.concatenate([values[:30], values[30:] + 9]) for name, values in features.items()}
    for name in features:
        before, after = (common_space(each, np.arange(30))[name] for each in (features, changed))
        np.testing.assert_array_equal(before[:30], after[:30])


def test_two_stages_order_the_first_anew_and_leave_the_others():
    random = np.random.default_rng(2)
    first, exact = random.integers(-3, 1, size=(50, 20)), random.integers(-9, 9, size=(50, 20))
    ranked = two_stages(first, exact, 6, np.random.default_rng(0))
    for before, score, after in zip(first, exact, ranked, strict=True):
        kept = np.argsort(-after, kind="stable")[:6]
        rest = np.setdiff1d(np.arange(20), kept)
        assert before[kept].min() >= before[rest].max()
        assert np.diff(score[kept]).max() <= 0
        np.testing.assert_array_equal(after[rest], before[rest])
    drawn = [two_stages(np.zeros((1, 4), int), np.zeros((1, 4), int), 1, np.random.default_rng(i)) for i in range(40)]
    assert {int(each.argmax()) for each in drawn} == {0, 1, 2, 3}  # where the cut falls into tied items


def test_the_second_stage_orders_candidates_by_the_cosine_of_its_bytes(vectors):
    stage = second_stage(vectors)
    assert stage.n_bytes == 16
    candidates = np.random.default_rng(3).permuted(np.tile(np.arange(300), (40, 1)), axis=1)[:, :50]
    ordered = stage.order("text", "image", ROWS, candidates)
    cosines = np.take_along_axis(stage.similarities("text", "image", ROWS, np.arange(300)), ordered, axis=1)
    assert np.diff(cosines).max() <= 2  # rounding
    np.testing.assert_array_equal(np.sort(ordered), np.sort(candidates))
    exact = vectors["text"][ROWS] @ vectors["image"].T
    exact /= np.linalg.norm(vectors["text"][ROWS], axis=1)[:, None] * np.linalg.norm(vectors["image"], axis=1)
    np.testing.assert_allclose(stage.similarities("text", "image", ROWS, np.arange(300)) / 2**22, exact, atol=0.01)


def test_the_experiment_measures_every_method_at_the_same_bytes_and_never_twice(tmp_path):
    sections = {
        "data": {"kind": "features", "path": str(write_features(tmp_path / "f.npz")), "queries": 40, "train": 140},
        "model": {"name": "features", "hidden": [8]},
        "train": {"epochs": 1, "batch_size": 70, "learning_rate": 1e-3, "validate_every": 0},
    }
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(sections))
    command = ["experiment", "bytes", "--config", tmp_path / "base.yaml", "--bits", "8", "--seeds", "1"]
    assert run_command(*command, "--out", tmp_path / "g") == 0
    _, results = read_grid(tmp_path / "g")
    closed = ["CCA-ITQ", "ITQ", "sign", "product quantiser", "int8"]  # the others need more bytes
    assert [result.method for result in results] == [*LEARNED, *closed]
    measured = {result.name: json.loads((result.folder / "bytes.json").read_text()) for result in results}
    for result in results:
        figures = measured[result.name]
        assert figures["bytes"] == 1
        assert figures["second_stage_bytes"] == (8 if result.method in LEARNED else 12)
        for task, score in figures["code"]["map"].items():
            assert score == pytest.approx(result.score(task))  # as the run's own evaluation
        for stage in ("code", "two_stages"):
            assert all(0 <= value <= 1 for value in figures[stage]["recall_at_10"].values())

    table = (tmp_path / "g" / "tables" / "bytes.md").read_text()
    assert table.count("| pairs |") == 1
    assert len(set(table.splitlines()[2].split("|"))) == 15  # no column is called like another
    assert (tmp_path / "g" / "plots" / "bytes.png").stat().st_size > 5_000
    assert_made_again("bytes", tmp_path / "g")
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "g" / "runs").glob("*/bytes.json")}
    run_bytes(
        named_grid("bytes", tmp_path / "base.yaml", tmp_path / "g", bits=[8], seeds=1), tmp_path / "g", Execution()
    )
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_codes_are_of_whole_bytes(tmp_path, capsys):
    command = ["experiment", "bytes", "--dataset", "synthetic", "--bits", "12", "--out", tmp_path / "g"]
    assert_refused(capsys, *command, says="--bits 12: this experiment compares whole bytes; take multiples of 8")


def test_a_collection_without_labels_is_refused_before_anything_is_trained(tmp_path, capsys):
    with np.load(write_features(tmp_path / "f.npz")) as arrays:
        np.savez(tmp_path / "g.npz", **{name: arrays[name] for name in ("id", "image", "text")})
    sections = {"data": {"kind": "features", "path": str(tmp_path / "g.npz")}, "model": {"name": "features"}}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(sections))
    command = ["experiment", "bytes", "--config", tmp_path / "base.yaml", "--out", tmp_path / "g"]
    assert_refused(capsys, *command, says="this collection has none")
    assert not (tmp_path / "g" / "runs").exists()
