"""``experiment baselines``: learning rates chosen on validation, floor and ceiling, and nothing twice."""

import csv
import json

import numpy as np
import pytest

from channelhash.codes import binarize, pack
from channelhash.config import make_config
from channelhash.data.collection import load_collection
from channelhash.errors import InputError, JobError
from channelhash.lab.experiments import reference_points, tuning
from channelhash.lab.experiments.reference_points import fixed_features, run_outputs
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.runner import Execution
from channelhash.lab.experiments.studies import baselines
from channelhash.lab.experiments.studies.baselines import BASELINES, run_baselines
from channelhash.lab.experiments.tables.baselines import baselines_table, learning_rates_table, shares
from channelhash.lab.experiments.tuning import best_trials, rate_of
from channelhash.metrics import hamming_histogram
from channelhash.metrics.real_valued import evaluate_cosines
from channelhash.models import load_model
from channelhash.models.linear_hashing import cca_itq
from channelhash.runs.splits import make_splits
from lab.experiments.made_grids import assert_made_again, named_grid
from lab.experiments.made_results import made_result
from small_runs import grid_base, run_command

LITERATURE = {
    "dcmh",
    "hashnet",
    "idhn",
    "csq",
    "orthohash",
    "greedyhash",
    "hyp2",
    "dnph",
    "talr",
    "sch-original",
    "qsmi",
    "dcgh",
}
LOSSES_HERE = ("DNPH", "DSCH")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return grid_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def command(base):
    """Two losses, two trials each, one run each."""
    folder = base.parent / "grid"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "RATE_FACTORS", (0.1, 1.0))
        patch.setattr(baselines, "MOST_TRIALS", 2)
        command = ["experiment", "baselines", "--losses", "dnph,dsch", "--config", base, "--bits", "8", "--seeds", "1"]
        yield [*command, "--out", folder]


@pytest.fixture(scope="module")
def folder(command):
    assert run_command(*command) == 0
    return command[-1]


def results_of(folder):
    return {result.method: result for result in read_grid(folder)[1]}


def test_every_loss_of_the_literature_is_in_the_grid(base, tmp_path):
    grid = named_grid("baselines", base, tmp_path, seeds=1)
    assert {run.config.loss_name for run in grid.runs} >= LITERATURE
    assert {run.method for run in grid.runs} == set(BASELINES)
    assert len(grid.runs) == len(BASELINES) * 4


def test_the_command_tunes_and_runs_between_floor_and_ceiling(folder):
    _, trials = read_grid(folder / "tuning")
    assert len(trials) == 4
    assert {result.n_bits for result in trials} == {32}
    results = results_of(folder)
    floors, ceilings = ("LSH", "PCA-ITQ", "CCA-ITQ"), ("features, cosine", "DNPH, unquantised", "DSCH, unquantised")
    assert set(results) == {*LOSSES_HERE, *floors, *ceilings}
    for method, trial in best_trials(trials).items():
        assert rate_of(results[method]) == rate_of(trial)
    for name in ("baselines", "baselines-shares", "learning-rates", "losses-test-last"):
        assert (folder / "tables" / f"{name}.md").exists()
    assert (folder / "plots" / "baselines-k8.png").stat().st_size > 5_000
    with open(folder / "figures.csv", newline="") as file:
        assert {row["method"] for row in csv.DictReader(file)} == set(results)
    assert_made_again("baselines", folder)


def test_nothing_is_done_twice(folder, command, capsys):
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")}
    assert run_command(*command, "--json") == 0
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("result.json")} == before
    assert [run["method"] for run in json.loads(capsys.readouterr().out)["runs"]] == list(results_of(folder))
    assert run_command("report", folder) == 0


def test_floor_and_ceiling_are_what_they_say(folder, base):
    results = results_of(folder)
    config = named_grid("baselines", base, folder, bits=[8], seeds=1).runs[0].config
    records = load_collection(config.sources).records
    splits = make_splits(config.split, records)
    features = fixed_features(config, records, splits.train)
    for modality, values in features.items():  # standardised, as the heads read them
        raw = records.items[modality]
        expected = (raw - raw[splits.train].mean(axis=0)) / raw[splits.train].std(axis=0)
        np.testing.assert_allclose(values, expected, rtol=1e-4, atol=1e-4)
    query, database = records.labels[splits.query], records.labels[splits.retrieval]
    maps = cca_itq({modality: values[splits.train] for modality, values in features.items()}, 8, 0)
    image, text = maps["image"](features["image"][splits.query]), maps["text"](features["text"][splits.retrieval])
    codes = pack(binarize(image)), pack(binarize(text))
    literal = hamming_histogram(*codes, query, database, n_bits=8).mean_average_precision()
    assert results["CCA-ITQ"].score("image->text") == pytest.approx(literal)
    model = load_model(results["DSCH"].folder)
    outputs = run_outputs(model, config, records)
    np.testing.assert_allclose(outputs["text"], model.outputs("text", records.items["text"]).numpy(), rtol=1e-5)
    parts = [{m: values[rows] for m, values in outputs.items()} for rows in (splits.query, splits.retrieval)]
    for task, evaluation in evaluate_cosines(*parts, query, database).items():
        assert results["DSCH, unquantised"].score(task) == pytest.approx(evaluation.report["map_tie_aware"])
    parts = [{"text": features["text"][rows]} for rows in (splits.query, splits.retrieval)]
    own = evaluate_cosines(*parts, query, database)["text->text"].report["map_tie_aware"]
    assert results["features, cosine"].score("text->text") == pytest.approx(own)
    assert results["features, cosine"].score("image->text") > results["LSH"].score("image->text")


def test_inputs_stand_in_where_encoders_are_trained(tmp_path):
    """Small pixels and word counts of the embedded set."""
    config = make_config(
        {
            "data": {"kind": "synthetic", "root": str(tmp_path / "data"), "n_images": 40, "queries": 6, "train": 20},
            "model": {"name": "small", "n_bits": 8},
            "loss": {"name": "dsch"},
        }
    )
    records = load_collection(config.sources).records
    splits = make_splits(config.split, records)
    features = fixed_features(config, records, splits.train)
    assert features["image"].shape == (len(records), 3 * 16 * 16)
    counts = features["text"]
    assert counts.min() == 0
    assert np.array_equal(counts, counts.round())
    frequency = counts[splits.train].sum(axis=0)
    assert np.all(np.diff(frequency) <= 0)
    assert frequency[-1] > 0


def test_cross_modal_features_of_one_space_are_compared_as_they_are(base, tmp_path):
    random = np.random.default_rng(0)
    grid = named_grid("baselines", base, tmp_path, bits=[8], seeds=1)
    config = grid.runs[0].config
    records = load_collection(config.sources).records
    splits = make_splits(config.split, records)
    features = {name: random.normal(size=(len(records), 6)) for name in ("image", "text")}
    labels = records.labels
    for one_space in (True, False):
        data = reference_points.ReferenceData(records, splits, features, one_space)
        found = reference_points._feature_cosines(data, config)
        assert len(found) == 4
        raw = evaluate_cosines(
            {"image": features["image"][splits.query]},
            {"text": features["text"][splits.retrieval]},
            labels[splits.query],
            labels[splits.retrieval],
        )["image->text"].report["map_tie_aware"]
        assert (found["image->text"].report["map_tie_aware"] == pytest.approx(raw)) == one_space


def test_a_grid_without_validation_is_refused(base, tmp_path):
    grid = named_grid("baselines", base, tmp_path, overrides=["train.validate_every=0"], bits=[8], seeds=1)
    with pytest.raises(InputError, match="settings are chosen on validation"):
        run_baselines(grid, tmp_path / "grid", Execution())


def trial(method, rate, score, status="finished"):
    result = made_result(method, 0, score, views=("validation",), status=status)
    result.settings["train"]["learning_rate"] = rate
    return result


def test_the_best_finished_trial_is_chosen():
    trials = [trial("A", 1e-4, 0.5), trial("A", 1e-3, 0.7), trial("A", 1e-2, 0.9, status="failed")]
    trials += [trial("B", 1e-3, 0.6), trial("B", 1e-4, 0.6), trial("B", 1e-2, 0.1)]
    assert {method: rate_of(best) for method, best in best_trials(trials).items()} == {"A": 1e-3, "B": 1e-3}
    table = learning_rates_table(trials)
    rows = {row[0].text: dict(zip(table.header[1:], row[1:], strict=True)) for row in table.rows}
    assert rows["A"]["0.001"].bold
    assert rows["A"]["0.01"].text == "failed"
    with pytest.raises(JobError, match="C: none of 1 trials worked, the first: out of memory"):
        best_trials([trial("C", 1e-4, 0.5, status="failed")])


def test_the_range_grows_for_all_while_a_best_trial_lies_at_its_end():
    factors = (0.1, 1.0, 10.0)

    def trials(**scores):
        return [trial(name, rate, s) for name, found in scores.items() for rate, s in zip(factors, found, strict=True)]

    assert baselines._widen(factors, trials(A=(0.1, 0.5, 0.2), B=(0.1, 0.4, 0.3))) == factors
    up = baselines._widen(factors, trials(A=(0.5, 0.1, 0.2), B=(0.1, 0.4, 0.6)))
    assert up == pytest.approx((0.1, 1.0, 10.0, 10 * 10**0.5))
    down = baselines._widen(factors, trials(A=(0.5, 0.1, 0.2), B=(0.1, 0.6, 0.4)))
    assert down == pytest.approx((0.1 * 10**-0.5, 0.1, 1.0, 10.0))


def test_the_share_of_the_way():
    def reference(method, kind, share):
        return made_result(method, 0, share, loss={"name": method, "anchor": kind})

    results = [
        *(made_result("DSCH", seed, share) for seed, share in enumerate((0.5, 0.6))),
        made_result("CSQ", 0, 0.4),
        reference("LSH", "floor", 0.2),
        reference("CCA-ITQ", "floor", 0.35),
        reference("DSCH, unquantised", "ceiling", 0.75),
        reference("features, cosine", "ceiling", 0.9),
    ]
    for result in results:
        result.settings["train"] |= {"learning_rate": 1e-3, "batch_size": 32}
    found = shares(results, "image->text")
    assert found == pytest.approx({"DSCH": 50.0, "CSQ": 12.5})
    assert shares(results[:-2], "image->text") == {}
    table = baselines_table(results)
    first = [tuple(cell.text for cell in row[1:]) for row in table.rows if row[0].text == "image → text"]
    assert first == [
        ("chance", "floor", "", "30.00"),
        ("LSH", "floor", "", "20.00"),
        ("CCA-ITQ", "floor", "", "35.00"),
        ("DSCH", "loss", "0.001", "55.00 ± 7.07"),
        ("CSQ", "loss", "0.001", "40.00"),
        ("DSCH, unquantised", "ceiling", "", "75.00"),
        ("features, cosine", "ceiling", "", "90.00"),
    ]
