"""``channelhash recall`` against literal loops over every query and item."""

import numpy as np
import pytest
import yaml

import channelhash as ch
from channelhash.codes.quantizer import Quantizer
from channelhash.codes.stage import Stage
from channelhash.metrics.recall import counterparts
from channelhash.runs.evaluate import _rankings, _second_stage, evaluate_pairs, run_codes
from channelhash.runs.folder import open_run
from metrics.ranking_equations import literal_recall
from small_runs import assert_refused, run_json, run_text, write_pairs

IMAGES, BITS = 120, 32


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """120 images of two texts each, of which the features know image, label and noise."""
    path = write_pairs(tmp_path_factory.mktemp("pairs") / "f.npz", IMAGES, (40, 36), (1.0, 1.0))
    arrays = dict(np.load(path))
    np.savez(path, labels=np.eye(3)[arrays["image"][:, :3].argmax(axis=1)] > 0, **arrays)
    return path


@pytest.fixture(scope="module")
def run(table):
    config = {
        "data": {
            "kind": "features",
            "path": str(table),
            "queries": 60,
            "validation_queries": 20,
            "train": "rest",
        },
        "model": {
            "name": "aligned",
            "encoder": "features",
            "n_bits": BITS,
            "nested": [8, 16],
            "hidden": [16],
        },
        "loss": {"name": "contrastive"},
        "train": {
            "epochs": 4,
            "batch_size": 40,
            "captions": "one",
            "learning_rate": 3e-3,
            "validate_every": 2,
        },
    }
    (table.parent / "c.yaml").write_text(yaml.safe_dump(config))
    return ch.train(table.parent / "c.yaml", out=table.parent / "run").folder


def bits_in_common(k):
    return lambda a, b: int(sum((x >= 0) == (y >= 0) for x, y in zip(a[:k], b[:k], strict=True)))


def cosine(a, b):
    return round(float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)), 6)


def test_rankings_are_those_of_their_definitions(run, table, capsys):
    result = run_json(capsys, "recall", run, table)
    assert (result["n_bits"], result["images"], result["tests"]) == (BITS, 30, 1)
    opened = open_run(run)
    queries = opened.collection.records.take(opened.splits.query)
    outputs = {
        side: opened.model.outputs(side, items).numpy() for side, items in queries.items.items()
    }
    texts, images = outputs["text"].astype(np.float64), outputs["image"][::2].astype(np.float64)
    for task, query, items, pairs in (
        ("text->image", texts, images, [[row // 2] for row in range(60)]),
        ("image->text", images, texts, [[2 * row, 2 * row + 1] for row in range(30)]),
    ):
        expected = {
            f"{k} bits": literal_recall(query, items, pairs, bits_in_common(k))
            for k in (BITS, 16, 8)
        }
        expected["real values"] = literal_recall(query, items, pairs, cosine)
        for ranking, scores in expected.items():
            for score, value in scores.items():
                assert result["rankings"][ranking][task][score] == pytest.approx(value), (
                    ranking,
                    task,
                    score,
                )
        second = result["rankings"][f"{BITS} bits, then int8 values of the first 500"][task]
        assert second["recall_at"] == pytest.approx(expected["real values"]["recall_at"], abs=0.04)
    codes = run_codes(run)
    of_run = ch.metrics.evaluate(codes.query, codes.retrieval)["text->image"]
    assert result["rankings"][f"{BITS} bits"]["text->image"]["recall_at"] == pytest.approx(
        of_run["recall_at"]
    )


def test_the_second_stage_orders_the_first_by_int8_values():
    random = np.random.default_rng(1)
    query, items = random.normal(size=(30, 24)), random.normal(size=(60, 24))
    pairs = counterparts([str(row) for row in range(30)], [str(row // 2) for row in range(60)])
    group = _second_stage(query, items, pairs, Stage(24), ("text", "image"), first=20)
    stage = Stage(24)
    rounded = stage.of("image").decode(stage.encode("image", items))
    for row in range(30):
        differing = (query[row] >= 0) != (items >= 0)
        sure = (differing * np.abs(query[row])).sum(axis=1)
        nearest = sorted(range(60), key=lambda item: (sure[item], str(item)))[:20]
        scores = rounded @ query[row]
        order = sorted(nearest, key=lambda item: -scores[item])
        places = [place for place, item in enumerate(order) if item in pairs[row]]
        expected = (places[0], 1, 1) if places else (20, 40, 2)
        assert (group.ahead[row], group.tied[row], group.counterparts[row]) == expected
    assert {1, 40} == set(group.tied.tolist())


def test_scores_are_means_over_tests_of_so_many_images(run, table, capsys):
    result = evaluate_pairs(run, table, images=14)
    assert (result["images"], result["tests"]) == (14, 2)
    opened = open_run(run)
    rows = opened.splits.query
    records = opened.collection.records
    parts = []
    for part in (rows[:28], rows[28:56]):
        values = {
            side: opened.model.outputs(side, records.items[side][part]).numpy()
            for side in ("text", "image")
        }
        names = np.array([str(row // 2) for row in part])
        parts.append(
            _rankings(values, names, [BITS], Stage(BITS))["real values"]["text->image"][
                "recall_at"
            ]["5"]
        )
    assert result["rankings"]["real values"]["text->image"]["recall_at"]["5"] == pytest.approx(
        np.mean(parts)
    )
    shown = " ".join(
        run_text(capsys, "recall", run, table, "--images", "14", "--checkpoint", "best").split()
    )
    assert "text → image, recall in %, 14 images, mean of 2 tests" in shown


def test_a_saved_model_asks_with_every_row(run, table, tmp_path, capsys):
    ch.load_model(run).save_pretrained(tmp_path / "saved")
    assert evaluate_pairs(tmp_path / "saved", table)["images"] == IMAGES
    assert_refused(
        capsys, "recall", run, table, "--images", 31, says="30 images to ask for, of 120"
    )
    texts = tmp_path / "texts.csv"
    texts.write_text("id,text\n1,a dog\n")
    assert_refused(capsys, "recall", run, texts, says="data or model have no images")


def test_vectors_behind_the_codes_are_compared_and_bits_are_of_the_codes():
    random = np.random.default_rng(3)
    vectors = random.normal(size=(40, 12)).astype(np.float32)
    near = {"image": vectors, "text": vectors + 0.3 * random.normal(size=vectors.shape)}
    quantizers = {name: Quantizer.fit(rows, 8) for name, rows in near.items()}
    codes = {name: random.normal(size=(40, 8)) for name in near}  # which say nothing
    outputs = {name: np.hstack([codes[name], near[name]]).astype(np.float32) for name in near}
    names = np.array([str(row) for row in range(40)])
    found = _rankings(outputs, names, [8], Stage(8, quantizers))
    by_bits = _rankings(codes, names, [8], Stage(8))["8 bits"]
    by_vectors = _rankings(near, names, [12], Stage(12))["real values"]
    assert found["8 bits"] == by_bits
    assert found["real values"] == by_vectors
    kept = found["8 bits, then int8 values of the first 500"]
    for task, scores in by_vectors.items():
        assert kept[task]["recall_at"]["1"] == pytest.approx(scores["recall_at"]["1"], abs=0.05)
        assert kept[task]["recall_at"]["1"] > by_bits[task]["recall_at"]["1"] + 0.5
