"""A graph as a module: frozen, the same in every process."""

import copy
import multiprocessing
import pickle

import numpy as np
import pytest
import torch
from onnx import TensorProto

from channelhash.models.backbones import Frozen, OnnxTower
from channelhash.models.hash_model import Branch, HashModel
from channelhash.models.onnx_graphs import Graph


def double_sum():
    graph = Graph()
    total = graph.add("ReduceSum", "x", np.array([1]))
    return graph.model({"x": (TensorProto.FLOAT, ["n", 3])}, {graph.add("Mul", total, np.float32(2)): ["n", 1]})


@pytest.fixture
def tower():
    return OnnxTower(double_sum, "0123456789abcdef")


def test_any_number_of_rows(tower):
    for n in (0, 1, 32, 70):
        rows = torch.arange(3.0 * n).reshape(n, 3)
        assert torch.equal(tower(rows), 2 * rows.sum(dim=1, keepdim=True))


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


def test_it_is_copied_and_moved(tower):
    tower(torch.ones(1, 3))
    for other in (copy.deepcopy(tower), pickle.loads(pickle.dumps(tower)), tower.to("cpu").double()):
        assert other(torch.ones(1, 3)).tolist() == [[6.0]]


def test_a_model_knows_its_weights_by_their_name_and_does_not_save_them(tower):
    branch = Branch(torch.tensor, Frozen(tower, "doubled", "rows", 1), torch.nn.Linear(1, 8))
    model = HashModel("mine", 8, {}, {"image": branch})
    assert model.backbones()["image"]["weights"] == "0123456789abcdef"
    assert set(model.trained_state()) == {"branches.image.head.weight", "branches.image.head.bias"}
    assert model.encode("image", [[1.0, 2.0, 3.0]]).shape == (1, 1)
