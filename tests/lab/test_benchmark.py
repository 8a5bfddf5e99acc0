"""``experiment benchmark``: every loss has the same trials, on every collection, and its tables come
from its raw scores.
"""

import csv
import math
import shutil
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from channelhash.errors import JobError
from channelhash.lab.experiments.comparisons import SeedTest, holm
from channelhash.lab.experiments.results import by_method, read_grid
from channelhash.lab.experiments.runner import Execution
from channelhash.lab.experiments.studies import benchmark, tuning
from channelhash.lab.experiments.text_tables import to_markdown
from channelhash.losses import LOSSES, PUBLISHED
from lab.grids import assert_made_again, made_result, named_grid, read_runs
from refusals import check_refusal
from small_runs import assert_refused, run_command, run_json, write_features


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(benchmark, "EXPERIMENT", replace(benchmark.EXPERIMENT, steps=3))


def test_every_loss_is_compared_in_both_forms_with_as_many_trials(base, tmp_path, capsys):
    names = {loss["name"] for loss in benchmark._LOSSES.values()}
    assert names >= set(PUBLISHED)
    assert names == set(tuning.CHOICES) == set(LOSSES) - {"contrastive"}
    assert {math.prod(map(len, keys.values())) for keys in tuning.CHOICES.values()} == {9}
    grid = named_grid("benchmark", base, tmp_path, seeds=2)
    plan = run_json(
        capsys, "experiment", "benchmark", "--config", base, "--seeds", "2", "--dry-run"
    )
    total = plan["total"]
    assert total["runs"] == len(grid.runs) == 2 * len(names) * 2
    assert total["trials"] == 12 * len(names)
    seconds = (total["runs"] + total["trials"]) * plan["plans"][0]["seconds"]["total"]
    assert total["seconds"] == pytest.approx(seconds, abs=0.1)
    assert {(run.config.train.seed, run.config.split.seed) for run in grid.runs} == {(0, 0), (1, 1)}
    assert {run.config.split.seed for run in grid.trials} == {1000}
    betas = {run.config.loss.beta for run in grid.runs if run.config.loss_name == "hyp2"}
    assert betas == {PUBLISHED["hyp2"]["beta"]}


def settings_in(config):
    """Initial weights, κ_q, weight of the AP term by bit, and half decades above 1e-3."""
    place = round(2 * math.log10(config.train.learning_rate / 1e-3))
    weight = config.terms.average_precision / config.n_bits
    return config.model.initial, config.loss.kappa_q, weight, place


@pytest.mark.parametrize("collections", [("a", "b", "c"), ("a",)], ids=len)
def test_settings_are_the_best_on_the_collection_and_on_all_others(
    base, tmp_path, monkeypatch, collections
):
    """Each collection has a best rate of its own; what is chosen has been tried at both rates
    beside it, on every collection.
    """
    tried: dict[str, set] = {}

    def score(name, config):
        _, kappa_q, weight, place = settings_in(config)
        best = {"a": -6, "b": 1, "c": 2}[name]
        return 0.5 - 0.01 * abs(place - best) - 0.001 * kappa_q + 0.001 * weight * (name == "b")

    def run(grid, folder, *_):
        results = []
        tried[folder.parent.name] = {settings_in(trial.config) for trial in grid.runs}
        for trial in grid.runs:
            share = score(folder.parent.name, trial.config)
            results.append(made_result(trial.method, 0, share, views=("validation",)))
        return results

    monkeypatch.setattr(tuning, "run_grid", run)
    monkeypatch.setattr(tuning, "_seen", lambda folder: folder)
    grid = named_grid("benchmark", base, tmp_path, losses=["dsch", "dsch:recommended"], seeds=2)
    grids = dict.fromkeys(collections, grid)
    chosen = tuning.choose_settings(grids, tmp_path, Execution())
    assert all(each == tried["a"] for each in tried.values())
    trials = {settings_in(run.config): run.config for run in all_tried(grid, tried["a"])}
    for name in collections:
        others = [other for other in collections if other != name]
        assert chosen[name].seen == tmp_path / name
        methods = by_method(chosen[name].runs)
        forms = {"DSCH, tuned": [name]} | ({"DSCH, one setting": others} if others else {})
        assert set(methods) == {*forms, "DSCH, recommended"}
        for method, places in forms.items():
            found = {settings_in(run.config) for run in methods[method]}
            (values,) = found
            means = {
                key: np.mean([score(place, config) for place in places])
                for key, config in trials.items()
            }
            assert means[values] == pytest.approx(max(means.values()))
            for place in (values[-1] - 1, values[-1] + 1):
                assert (*values[:-1], place) in tried["a"] or abs(place) > 6


def all_tried(grid, keys):
    """Runs with the settings that were tried."""
    (start,) = [run for run in grid.trials if run.method == "DSCH, tuned"]
    for initial, kappa_q, weight, place in keys:
        values = {
            "initial": initial,
            "kappa_q": kappa_q,
            "average_precision": weight,
            "learning_rate": 1e-3 * 10 ** (place / 2),
        }
        yield tuning.with_settings(start, values)


def test_a_loss_of_which_no_trial_works_is_named():
    failed = [made_result("C", 0, status="failed")]
    says = "C: none of 1 trials worked, the first: out of memory"
    check_refusal(says, tuning.chosen_trials, {"C": failed}, error=JobError)
    scores = {"a": [-math.inf, -math.inf]}
    check_refusal(
        "a: none of 2 trials of a loss", tuning._best, scores, "a", tuning.TUNED, error=JobError
    )


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ("data.validation_queries=0", "settings are chosen on validation"),
        ("data.split_method=given", "all of R∖T would be seen by the trials"),
    ],
)
def test_a_grid_without_validation_apart_is_refused(base, tmp_path, capsys, setting, says):
    split = ["data.queries=null", "data.train=null"] if "given" in setting else []
    if split:
        write_parts(tmp_path / "f.npz")
    options = [f"--set={each}" for each in (setting, *split)]
    options += [f"--config={base}", "--loss=dsch", "--out", tmp_path / "grid"]
    assert_refused(capsys, "experiment", "benchmark", *options, says=says)


def write_parts(path):
    """Features in parts, as a collection with a split of its own."""
    random = np.random.default_rng(0)
    arrays = {}
    for part, rows in (("tr", 60), ("te", 20), ("db", 40)):
        arrays[f"I_{part}"] = random.normal(size=(rows, 8))
        arrays[f"T_{part}"] = random.normal(size=(rows, 4))
        arrays[f"L_{part}"] = np.ones((rows, 2))
    np.savez(path, **arrays)


score = st.floats(0.1, 0.9).map(lambda value: round(value, 4))


@pytest.mark.parametrize("ours", ["DSCH, recommended", "DSCH, one setting"])
@settings(max_examples=10)
@given(scores=st.lists(st.tuples(score, score, score), min_size=2, max_size=5))
def test_ours_is_compared_with_each_tuned_loss(ours, scores):
    """By the view that no choice has seen; other losses with our weights are not in the table."""
    results = []
    view = "apart" if ours.endswith("setting") else "leak_free"
    methods = (ours, "CSQ, tuned", "DNPH, tuned")
    for seed, row in enumerate(scores):
        for method, value in zip(methods, row, strict=True):
            cell = {"image->text": value}
            results.append(made_result(method, seed, cell, views=(view,)))
        results.append(made_result("SCH, recommended", seed, cell, views=(view,)))
    for result in results:
        result.settings["data"].update(seed=result.seed, queries=1, train=5)
    tables = benchmark._across_tables({"one": results, "other": results[:1]})
    (table,) = [table for table in tables if table.name == "recommendation"]
    first, *others = 100 * np.array(scores).T
    tests = [SeedTest.of(first - other, 0.2) for other in others]
    corrected = holm([test.p_value for test in tests])
    for row, name, test, p in zip(table.rows, ("CSQ", "DNPH"), tests, corrected, strict=True):
        loss, cell, missing = row
        numbers = [float(n.strip("[],").replace("−", "-")) for n in cell.text.split()]
        assert (loss.text, missing.text, cell.bold) == (name, "–", p <= 0.05)
        assert numbers == pytest.approx([test.difference, test.lower, test.upper], abs=0.0051)


def test_collections_are_compared_by_ranks_made_of_their_own_tables(
    base, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(tuning, "_DRAWN_PLACES", (0,))
    monkeypatch.setattr(tuning, "_DRAWS", 2)
    monkeypatch.setattr(tuning, "_FURTHEST", 1)
    write_features(tmp_path / "g.npz", seed=1)
    folder = tmp_path / "grids"
    data = [f"--data=features={tmp_path / 'f.npz'}", f"--data=benchmark={tmp_path / 'g.npz'}"]
    options = ["--set=data.queries=40", "--set=data.train=120", "--bits=8", "--seeds=2"]
    options += [f"--loss={name}" for name in ("dsch", "csq", "dsch:recommended")]
    options += [f"--config={base}", f"--out={folder}"]
    assert run_command("experiment", "benchmark", *data, *options) == 0
    table = (folder / "tables" / "ranks-tuned.md").read_text()
    assert table.splitlines()[0].strip("*") in capsys.readouterr().out
    header, _, *rows = [
        line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")
    ]
    columns = product(("Mean rank", "features", "benchmark"), ("R∖T", "R"))
    assert header[1:] == list(map(", ".join, columns))
    scores = {}
    for name in ("features", "benchmark"):
        results = read_grid(folder / name)[1]
        means = benchmark._method_means(results, "apart", "map_tie_aware")
        scores[name] = {loss: np.mean(means[f"{loss}, tuned"]) for loss in ("DSCH", "CSQ")}
        assert_made_again("benchmark", folder / name)
        check_choices(name, folder / name)
    for loss, rank, _, *cells in rows:
        assert [cells[0].strip("*"), cells[2].strip("*")] == [
            f"{100 * each[loss]:.2f}" for each in scores.values()
        ]
        better = [sum(other > each[loss] for other in each.values()) for each in scores.values()]
        assert rank.strip("*") == f"{1 + np.mean(better):.1f}"
    every = read_runs(folder / "runs.csv")
    assert set(every) == {"features", "benchmark"}
    trials = read_runs(folder / "trials.csv")
    assert set(trials) == {"features/trials", "benchmark/trials"}
    tables = {table.name: table for table in benchmark._across_tables(every)}
    assert set(tables) == {
        "ranks-tuned",
        "ranks-one-setting",
        "ranks-as-published",
        "recommendation",
        "recommendation-one-setting",
    }
    assert {row[0].text for row in tables["ranks-one-setting"].rows} == {"DSCH", "CSQ"}
    assert [row[0].text for row in tables["recommendation-one-setting"].rows] == ["CSQ"]
    for name, each in tables.items():
        assert to_markdown(each) == (folder / "tables" / f"{name}.md").read_text()
    with open(folder / "runs.csv", newline="") as file:
        text = file.read()
    assert str(tmp_path) not in text
    assert len({row["splits"] for row in csv.DictReader(text.splitlines())}) == 2
    assert_refused(capsys, "experiment", "losses", *data, says="takes one collection")


def check_choices(name, folder):
    """What a grid took is what its trials say; our weights are left as they are."""
    trials = by_method(read_grid(folder / "trials")[1])
    assert all(list(each.epochs["last"]) == ["validation"] for each in trials["DSCH, tuned"])
    for method, runs in by_method(read_grid(folder)[1]).items():
        for run in runs:
            loss = run.settings["loss"]
            if method == "DSCH, recommended":
                assert loss["kappa_q"] == 0.3
                assert tuning.rate_of(run) == 1e-3
            elif method.endswith(", tuned"):
                best = max(trials[method], key=tuning.validation_score).settings
                assert run.settings["train"]["learning_rate"] == best["train"]["learning_rate"]
                assert run.settings["model"]["initial"] == best["model"]["initial"]
                assert loss["average_precision"] / 8 == best["loss"]["average_precision"] / 32


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (["features=f.npz", "features2=g.npz"], ["features", "features2"]),
        (["mine=f.npz", "own.yaml=g.npz"], ["mine", "own"]),
        (["f.npz", "sub/g.npz"], ["f", "g"]),
        (["a=b.npz", "other=h"], ["a=b", "other"]),  # a file's own name, and a folder of arrays
    ],
    ids=str,
)
def test_collections_of_ones_own_are_compared(base, tmp_path, capsys, monkeypatch, data, names):
    monkeypatch.chdir(tmp_path)
    write_features(tmp_path / "g.npz", seed=1)
    (tmp_path / "sub").mkdir()
    for name in ("sub/g.npz", "a=b.npz"):
        shutil.copy("g.npz", name)
    (tmp_path / "h").mkdir()
    with np.load("g.npz") as arrays:
        for name in arrays.files:
            np.save(tmp_path / "h" / f"{name}.npy", arrays[name])
    Path("own.yaml").write_text("data: {kind: features, path: gone.npz, seed: 7}")
    options = [*(f"--data={each}" for each in data), "--config", base, "--bits", 8, "--seeds", 1]
    options += ["--loss", "dsch", "--set=data.queries=40", "--set=data.train=120"]
    plan = run_json(capsys, "experiment", "benchmark", *options, "--dry-run")
    titles = [each["title"].rpartition(", ")[2] for each in plan["plans"]]
    assert titles == names


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (["features=f.npz", "features=f.npz"], "features is named twice; give each collection"),
        (["f.npz", "sub/f.npz"], "f is named twice; give each collection a name of its own"),
        (["f.npz", "sub/x=f.npz"], "'sub/x' cannot be a folder's name"),
        (["f.npz", "tables=f.npz"], "'tables' cannot be a folder's name"),
        (["f.npz", "=f.npz"], "write a collection as NAME=PLACE"),
        (["f.npz", "wikipedai=folder"], "unknown preset 'wikipedai'; did you mean 'wikipedia'?"),
        (["f.npz", "mine=f.pdf"], "f.pdf: a file ends in .csv"),
    ],
    ids=str,
)
def test_collections_that_cannot_be_told_apart_or_read_are_named(
    base, tmp_path, capsys, monkeypatch, data, says
):
    monkeypatch.chdir(tmp_path)
    options = [*(f"--data={each}" for each in data), "--config", base, "--dry-run"]
    assert_refused(capsys, "experiment", "benchmark", *options, says=says)
