"""Each script of benchmarks/ prints its table in small; what the alternatives compute is what ours
compute.
"""

import runpy
import sys

import numpy as np
import pytest
import torch

import channelhash as ch
from channelhash.losses import DSCHLoss
from pages import ROOT

SMALL = {
    "learned": "--drawn 300 --bits 8 --seeds 1",
    "loss": "--samples 6 --bits 16 --losses dsch,sch --head 8,4 --batches 6",
    "metrics": "--queries 6 --items 200 --sample 2 --sizes 100",
    "quality": "",
    "search": "--sizes 2000 --bits 64 --batch 5",
    "serve": "--seconds 0.3 --codes 2000 --clients 2 --workers 1",
    "start": "--codes 200 --repeats 1",
    "stores": "--codes 2000 --engines folder,postgres",
    "train": "--rows 256 --device cpu",
    "unlabelled": "--drawn 400 --steps 2 --bits 8 --seeds 1",
    "words": "--sizes 2000",
}


def load(name: str, run_name: str, monkeypatch) -> dict:
    monkeypatch.setattr(sys, "path", [str(ROOT / "benchmarks"), *sys.path])
    monkeypatch.setattr("timing._SHORTEST", 0.0)  # figures of tests do not matter
    return runpy.run_path(str(ROOT / "benchmarks" / f"{name}.py"), run_name=run_name)


def test_every_script_is_run_by_make():
    scripts = {
        path.stem for path in (ROOT / "benchmarks").glob("*.py") if "    main()" in path.read_text()
    }
    assert scripts == {*SMALL}
    line = next(
        line
        for line in (ROOT / "Makefile").read_text().splitlines()
        if line.startswith("BENCHMARKS :=")
    )
    assert {*line.split()[2:]} == scripts


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_a_script_prints_its_table(name, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [name, *SMALL[name].split()])
    load(name, "__main__", monkeypatch)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    assert len(lines) > 2
    assert len({line.count("|") for line in lines}) <= 3  # tables
    if name == "serve":
        assert {line.split(" | ")[-2] for line in lines[2:]} == {"0"}  # errors
    if name == "stores":
        # none is lost
        assert {tuple(line.split(" | ")[-2:]) for line in lines[2:]} == {("20", "0 |")}


def test_the_literal_loss_has_the_value_and_gradient_of_ours(monkeypatch):
    loss = load("loss", "loss", monkeypatch)
    outputs, labels = loss["draw_batch"](12, 16)
    literal = [loss[name](outputs, labels, 16) for name in ("literal_dsch", "one_piece_dsch")]
    values = [DSCHLoss(n_bits=16)(outputs, labels), *literal]
    gradients = [torch.autograd.grad(value, list(outputs.values())) for value in values]
    torch.testing.assert_close(values[1:], values[:1] * 2)
    torch.testing.assert_close(gradients[1:], gradients[:1] * 2)


def test_the_literal_evaluation_gives_the_scores_of_the_report(monkeypatch):
    metrics, k, c = load("metrics", "metrics", monkeypatch), 16, 21
    labels = metrics["draw_labels"](20, c, "queries"), metrics["draw_labels"](300, c, "items")
    packed = (
        metrics["draw_codes"](labels[0], k, "image"),
        metrics["draw_codes"](labels[1], k, "text"),
    )
    query, database = (
        ch.CodeSet([str(i) for i in range(len(codes))], {"image": codes}, own, k)
        for codes, own in zip(packed, labels, strict=True)
    )
    report = ch.metrics.evaluate(query, database, cutoffs=())["image->image"]
    bits = [ch.codes.unpack(codes, k) for codes in packed]
    scores = metrics["evaluate_literally"](*bits, *labels, cutoffs=(300,))
    for name in (
        "map_tie_aware",
        "map_lower",
        "map_upper",
        "map_in_order",
        "ndcg",
        "ndcg_graded",
        "roc_auc_macro",
    ):
        assert scores[name] == pytest.approx(report[name], abs=1e-9), name
    for name in ("precision", "recall"):
        assert scores[f"radius_2_{name}"] == pytest.approx(report["radius_2"][name])
    assert scores["map_at_300"] == pytest.approx(scores["map_in_order"])


@pytest.fixture(scope="module")
def small_collection(tmp_path_factory):
    """A folder of a collection and one of its vectors, as `quality` reads them."""
    folder = tmp_path_factory.mktemp("quality")
    random = np.random.default_rng(0)
    for part, n in (("docs", 400), ("queries", 6)):
        ids = np.array([str(row) for row in range(n)])
        vectors = random.normal(size=(n, 128)) + 1
        np.savez(folder / f"med-minilm-{part}.npz", vectors=vectors, id=ids)
    (folder / "med").mkdir()
    lines = [f"{question}\t{document}" for question in range(6) for document in range(40)]
    (folder / "med" / "qrels.tsv").write_text("\n".join(lines), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "method", ["floats", "FAISS SQ", "FAISS RaBitQ", "FAISS ITQ", "ours, bits, then numbers"]
)
def test_quality_counts_what_a_method_finds_and_all_its_bytes(
    method, small_collection, monkeypatch
):
    quality = load("quality", "quality", monkeypatch)
    data_set = quality["load"]("med", "minilm", small_collection, small_collection)
    products = data_set.questions @ data_set.vectors.T
    assert data_set.exact.tolist() == np.argsort(-products, kind="stable")[:, :10].tolist()
    (made,) = (each for each in quality["available"]() if each.name == method)
    rows = list(quality["_rows"](data_set, made))
    assert rows
    for row in rows:
        index = made.build(data_set.vectors, row["setting"])
        if not made.is_ours:  # which checks that itself
            fewer = made.build(data_set.vectors[:300], row["setting"])
            assert row["bytes_once"] == fewer.shared
        found = [
            len({*index.search(question).tolist()} & {*exact})
            for question, exact in zip(data_set.questions, data_set.exact.tolist(), strict=True)
        ]
        assert row["found"] == " ".join(map(str, found))
        if method == "floats":
            assert found == [10] * 6
