"""What version 0.1 wrote opens as before: a run, a store and a file of codes, kept in `made_by_0_1`.

`expected.json` holds the answers of version 0.1 itself.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import channelhash as ch
from small_runs import run_command

MADE = Path(__file__).parent / "made_by_0_1"
EXPECTED = json.loads((MADE / "expected.json").read_text())


@pytest.fixture
def made(tmp_path):
    """A copy of the files; paths in the configuration of the run point into it."""
    folder = tmp_path / "made"
    shutil.copytree(MADE, folder)
    config = folder / "run" / "config.yaml"
    config.write_text(config.read_text().replace("path: features.npz", f"path: {folder / 'features.npz'}"))
    return folder


def test_the_model_of_a_run_makes_the_same_codes(made):
    features = np.load(made / "features.npz")["image"][:3]
    assert ch.load_model(made / "run").encode("image", features).tolist() == EXPECTED["codes"]


@pytest.mark.parametrize("codes", ["kept", "made anew"])
def test_a_run_is_evaluated_to_the_same_scores(made, capsys, codes):
    if codes == "made anew":
        shutil.rmtree(made / "run" / "codes")
    assert run_command("evaluate", made / "run", "--json") == 0
    tasks = json.loads(capsys.readouterr().out)["tasks"]
    assert tasks.keys() == EXPECTED["metrics"].keys()
    for task, scores in EXPECTED["metrics"].items():
        for name, value in scores.items():
            assert tasks[task][name] == pytest.approx(value, abs=1e-12), (task, name)


def test_a_finished_run_is_left_as_it_is(made, capsys):
    weights = (made / "run" / "model" / "model.safetensors").read_bytes()
    config = made / "run" / "config.yaml"
    assert run_command("train", config, "--out", made / "run", "--resume") == 0
    assert (made / "run" / "model" / "model.safetensors").read_bytes() == weights


def test_an_interrupted_run_goes_on(made):
    weights = load_file(made / "run" / "model" / "model.safetensors")
    shutil.rmtree(made / "run" / "model")
    assert run_command("train", made / "run" / "config.yaml", "--out", made / "run", "--resume") == 0
    again = load_file(made / "run" / "model" / "model.safetensors")
    assert again.keys() == weights.keys()
    assert all(torch.equal(again[name], values) for name, values in weights.items())


def test_a_store_gives_the_same_answers(made):
    assert any((made / "store").glob("snapshot-*")), "the fixture holds a snapshot too"
    store = ch.open_store(made / "store")
    assert len(store) == EXPECTED["items"]
    query = store.get(["item010"])[0].codes
    found = {
        "nearest": store.search(query["image"][None], k=5),
        "within": store.search_radius(query["text"][None], 3, modality="text"),
        "filtered": store.search(query["image"][None], k=3, where="year > 2000"),
    }
    for name, answers in found.items():
        assert answers.ids[0] == EXPECTED[name]["ids"]
        assert answers.distances[0].tolist() == EXPECTED[name]["distances"]
    store.close()


def test_a_store_takes_more_items_of_its_own_model(made):
    store = ch.open_store(made / "store")
    assert ch.load_model(store.model_folder).fingerprint() == store.model
    store.add(["new"], np.zeros((1, 2), dtype=np.uint8))
    assert len(store) == EXPECTED["items"] + 1
    store.close()


def test_a_file_of_codes_is_read(made):
    codes = ch.CodeSet.load(made / "run" / "codes" / "test-query.parquet")
    assert (codes.n_bits, len(codes), set(codes.codes)) == (12, 16, {"image", "text"})
