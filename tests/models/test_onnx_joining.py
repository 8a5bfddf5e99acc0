"""Towers in exported files: rounded weights, a head behind them, and no torch to run them."""

import copy
import json
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto
from PIL import Image
from torch import nn

from channelhash.models.backbones import Frozen, OnnxTower
from channelhash.models.encoders import open_encoder
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.onnx_export import _ROUNDED_TOLERANCE, export_onnx
from channelhash.models.onnx_graphs import _Graph, _rounded

TEXTS = ["two people riding horses on a beach", "Übergroße Straßenbahn, 1987!", "", "snow " * 300]
ALONE = """
import sys
sys.modules["torch"] = sys.modules["channelhash"] = None  # neither can be imported
sys.path.insert(0, sys.argv[1])
import json
from pathlib import Path
import numpy as np
from literal_recipe import exported_outputs
folder, pictures, texts = Path(sys.argv[2]), json.loads(sys.argv[3]), json.loads(sys.argv[4])
np.savez(folder / "found.npz", image=exported_outputs(folder, "image", pictures, 2),
         text=exported_outputs(folder, "text", texts, 3))
"""


def test_rounded_weights_are_int8_rows_and_float16():
    random, graph = np.random.default_rng(0), _Graph()
    table, matrix, vector = (random.normal(size=n).astype(np.float32) for n in ((5, 4), (4, 3), 3))
    table[1] = 0
    product = graph.add("MatMul", graph.add("Gather", table, "ids"), matrix)
    model = graph.model({"ids": (TensorProto.INT64, ["n"])}, {graph.add("Add", product, vector): ["n", 3]})
    small = _rounded(model)
    scales = [max(map(abs, row)) / 127 for row in table]
    rows = np.array([[round(x / s) * s if s else 0 for x in row] for row, s in zip(table, scales, strict=True)])
    expected = rows.astype(np.float32) @ matrix.astype(np.float16).astype(np.float32) + vector
    found = onnxruntime.InferenceSession(small.SerializeToString()).run(None, {"ids": np.arange(5)})[0]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    kinds = sorted(weight.data_type for weight in small.graph.initializer)
    assert kinds == sorted([TensorProto.INT8, TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.FLOAT])


@pytest.mark.slow
def test_both_sides_of_photo_answer_without_torch(tmp_path):
    encoder = open_encoder("photo-backbones")
    torch.manual_seed(0)
    heads = {name: nn.Linear(side.width, 16) for name, side in encoder.sides.items()}
    branches = {name: Branch(side.prepare, side.network, heads[name]) for name, side in encoder.sides.items()}
    model = HashModel("own", 16, {}, branches).eval()
    folder = tmp_path / "exported"
    description = export_onnx(model, folder)
    assert {path.name for path in folder.iterdir()} == {
        *("image.onnx", "image.onnx.data", "text.onnx", "text.onnx.data", "tokenizer.json", "export.json")
    }
    assert sum(path.stat().st_size for path in folder.iterdir()) < 45e6
    pictures = []
    for seed, size in enumerate([(300, 200), (90, 400), (900, 900)]):
        coarse = np.random.default_rng(seed).integers(0, 256, (6, 6, 3), dtype=np.uint8)
        pictures.append(str(tmp_path / f"{seed}.jpg"))
        Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(pictures[-1])
    tests = str(Path(__file__).parents[1])
    subprocess.run(
        [sys.executable, "-c", ALONE, tests, str(folder), json.dumps(pictures), json.dumps(TEXTS)], check=True
    )
    found = np.load(folder / "found.npz")
    for modality, items in {"image": pictures, "text": TEXTS}.items():
        outputs = model.outputs(modality, items).numpy()
        assert len(np.unique(outputs.round(2), axis=0)) == len(items)
        largest = np.abs(outputs).max()
        np.testing.assert_allclose(found[modality], outputs, atol=_ROUNDED_TOLERANCE * largest)
        assert 0 < description["modalities"][modality]["largest_difference"] < _ROUNDED_TOLERANCE * largest * 2


def double_sum():
    graph = _Graph()
    total = graph.add("ReduceSum", "x", np.array([1]))
    return graph.model({"x": (TensorProto.FLOAT, ["n", 3])}, {graph.add("Mul", total, np.float32(2)): ["n", 1]})


@pytest.fixture
def tower():
    return OnnxTower(double_sum, "0123456789abcdef")


def test_any_number_of_rows_also_by_copies(tower):
    for n in (0, 1, 32, 70):
        rows = torch.arange(3.0 * n).reshape(n, 3)
        assert torch.equal(tower(rows), 2 * rows.sum(dim=1, keepdim=True))
    tower(torch.ones(1, 3))
    for other in (copy.deepcopy(tower), pickle.loads(pickle.dumps(tower)), tower.to("cpu").double()):
        assert other(torch.ones(1, 3)).tolist() == [[6.0]]


def _in_a_process(tower, results):
    results.put(tower(torch.ones(2, 3)).tolist())


def test_it_runs_in_a_forked_process(tower):
    tower(torch.ones(1, 3))  # its session exists already
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    process = context.Process(target=_in_a_process, args=(tower, results))
    process.start()
    assert results.get(timeout=60) == [[6.0], [6.0]]
    process.join()


def test_a_model_knows_its_weights_by_their_name_and_does_not_save_them(tower):
    branch = Branch(torch.tensor, Frozen(tower, "doubled", "rows", 1), torch.nn.Linear(1, 8))
    model = HashModel("mine", 8, {}, {"image": branch})
    assert model.backbones()["image"]["weights"] == "0123456789abcdef"
    assert set(model.trained_state()) == {"branches.image.head.weight", "branches.image.head.bias"}
    assert model.encode("image", [[1.0, 2.0, 3.0]]).shape == (1, 1)
