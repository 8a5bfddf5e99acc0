"""``experiment benchmark``: every loss has the same number of trials, and its tables come from its
raw scores.
"""

import csv
import math
import shutil
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from channelhash.errors import JobError
from channelhash.lab.experiments.comparisons import SeedTest, holm
from channelhash.lab.experiments.results import by_method, query_means, read_grid
from channelhash.lab.experiments.studies import benchmark, tuning
from channelhash.lab.experiments.text_tables import to_markdown
from channelhash.losses import LOSSES, PUBLISHED, RECOMMENDED
from lab.grids import assert_made_again, made_result, named_grid, read_runs
from refusals import check_refusal
from small_runs import assert_refused, run_command, run_json, write_features


def test_every_loss_is_compared_in_both_forms_with_as_many_trials(base, tmp_path, capsys):
    names = {loss["name"] for loss in benchmark._LOSSES.values()}
    fixed = [method for method, loss in benchmark._LOSSES.items() if loss.get("recommended")]
    assert fixed == [f"{name.upper()}, recommended" for name in RECOMMENDED]
    assert names >= set(PUBLISHED)
    assert names == set(tuning.CHOICES) == set(LOSSES) - {"contrastive"}
    assert {math.prod(map(len, keys.values())) for keys in tuning.CHOICES.values()} == {9}
    grid = named_grid("benchmark", base, tmp_path, seeds=2)
    plan = run_json(
        capsys, "experiment", "benchmark", "--config", base, "--seeds", "2", "--dry-run"
    )
    losses = len(benchmark._LOSSES) - len(fixed)
    total = plan["total"]
    assert total["runs"] == len(grid.runs) == (2 * losses + len(fixed)) * 3 * 2
    assert total["trials"] == (2 * 4 + 9) * losses
    seconds = (total["runs"] + total["trials"]) * plan["plans"][0]["seconds"]["total"]
    assert total["seconds"] == pytest.approx(seconds, abs=0.1)
    assert {(run.config.train.seed, run.config.split.seed) for run in grid.runs} == {(0, 0), (1, 1)}
    betas = {run.config.loss.beta for run in grid.runs if run.config.loss_name == "hyp2"}
    assert betas == {PUBLISHED["hyp2"]["beta"]}


@pytest.fixture
def folder(base):
    """Two losses, two rates, two kinds of initial weights; five draws with choices of weights; two
    splits.
    """
    folder = base.parent / "grid"
    choices = {
        "dsch": {"kappa_q": (0.01, 0.3), "average_precision": (0.0, 0.25)},
        "dnph": {"proxies": (0.0, 0.02)},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "_RATE_FACTORS", (1.0, 3.0))
        patch.setattr(tuning, "CHOICES", choices)
        patch.setattr(tuning, "_DRAWS", 5)
        options = [
            "--loss=dnph",
            "--loss=dsch",
            "--bits=8",
            "--seeds=2",
            "--config",
            base,
            "--out",
            folder,
        ]
        assert run_command("experiment", "benchmark", *options) == 0
        yield folder


def test_the_grid_is_tuned_and_its_tables_come_from_its_raw_scores(folder):
    """Of a tuned form, the published one's trials count, too."""
    trials = read_grid(folder / benchmark._TRIALS)[1]
    for loss in ("DNPH", "DSCH"):
        published, tuned = (by_method(trials)[method] for method in (loss, f"{loss}, tuned"))
        tried = [tuning.settings_of(trial) for trial in published]
        settings = [tuple(values.values()) for values in tried]
        assert settings == [("paper", 1e-3), ("paper", 3e-3), ("pytorch", 1e-3), ("pytorch", 3e-3)]
        drawn = [tuple(tuning.settings_of(trial).values()) for trial in tuned]
        assert len(set(drawn)) == 5
        assert {combination[:2] for combination in drawn} <= set(settings)
    assert all(list(trial.epochs["last"]) == ["validation"] for trial in trials)
    results = read_grid(folder)[1]
    for result in results:
        methods = (result.method, tuning.loss_of(result.method))
        among = [trial for trial in trials if trial.method in methods]
        chosen = max(among, key=tuning.validation_score).settings
        assert result.settings["model"]["initial"] == chosen["model"]["initial"]
        loss = result.settings["loss"]
        for key in ("learning_rate", "rates"):
            assert result.settings["train"][key] == chosen["train"][key]
        assert loss["average_precision"] / 8 == chosen["loss"]["average_precision"] / 32
        assert loss.get("kappa_q") == chosen["loss"].get("kappa_q")
        assert result.epochs["best"] == result.epochs["last"]
    names = {path.stem for path in (folder / "tables").glob("*.md")}
    tuned = {"chosen-weights", "learning-rates"}
    assert tuned | {"means", "differences-test", "losses-test-last"} <= names
    assert_made_again("benchmark", folder)
    with open(folder / "runs.csv", newline="") as file:
        text = file.read()
    assert str(folder.parent) not in text
    rows = list(csv.DictReader(text.splitlines()))
    assert [(row["seed"], row["n_bits"]) for row in rows] == [("0", "8"), ("1", "8")] * 4
    assert len({row["splits"] for row in rows}) == 2
    score = float(rows[0]["last/leak_free/text->image/ndcg_graded"])
    assert score == pytest.approx(
        results[0].score("text->image", "ndcg_graded", "leak_free"), rel=1e-7
    )
    check_other_queries(results)


def test_a_grid_without_validation_is_refused(base, tmp_path, capsys):
    options = [f"--config={base}", "--set=train.validate_every=0", "--out", tmp_path / "grid"]
    assert_refused(
        capsys, "experiment", "benchmark", *options, says="settings are chosen on validation"
    )


def trial(method, rate, score, status="finished"):
    result = made_result(method, 0, score, views=("validation",), status=status)
    result.settings["train"]["learning_rate"] = rate
    return result


def test_the_best_finished_trial_is_chosen():
    trials = [trial("A", 1e-4, 0.5), trial("A", 1e-3, 0.7), trial("A", 1e-2, 0.9, status="failed")]
    trials += [trial("B", 1e-3, 0.6), trial("B", 1e-4, 0.6), trial("B", 1e-2, 0.1)]
    rates = {method: tuning.rate_of(best) for method, best in tuning.chosen_trials(trials).items()}
    assert rates == {"A": 1e-3, "B": 1e-3}
    table = tuning.learning_rates_table(trials)
    rows = {row[0].text: dict(zip(table.header[1:], row[1:], strict=True)) for row in table.rows}
    assert rows["A"]["0.001"].bold
    assert rows["A"]["0.01"].text == "failed"
    failed = [trial("C", 1e-4, 0.5, status="failed")]
    says = "C: none of 1 trials worked, the first: out of memory"
    check_refusal(says, tuning.chosen_trials, failed, error=JobError)


score = st.floats(0.1, 0.9).map(lambda value: round(value, 4))


@settings(max_examples=25)
@given(scores=st.lists(st.tuples(score, score, score), min_size=2, max_size=5))
def test_differences_equal_the_tests_written_out(scores):
    """Two tasks of one code length; a third method of one seed has no test."""
    results = []
    for seed, (first, second, third) in enumerate(scores):
        results += [made_result("DSCH, tuned", seed, {"image->text": first, "text->image": second})]
        results += [made_result("CSQ", seed, {"image->text": third, "text->image": first})]
    results.append(made_result("SCH", 0))
    for result in results:
        result.settings["data"].update(seed=result.seed, queries=1, train=5)
    (table,) = benchmark._differences_tables(results)
    (row,) = table.rows
    name, mean, p, _, ahead, clear, behind = (cell.text for cell in row)
    cells = 100 * np.array([[first - third, second - first] for first, second, third in scores])
    test = SeedTest.of(cells.mean(axis=1), 0.2)
    each = [SeedTest.of(column, 0.2) for column in cells.T]
    corrected = zip(each, holm([t.p_value for t in each]), strict=True)
    clearly = [t.difference for t, p_of_cell in corrected if p_of_cell <= 0.05]
    assert name == "CSQ"
    numbers = [float(number.strip("[],").replace("−", "-")) for number in mean.split()]
    assert numbers == pytest.approx([test.difference, test.lower, test.upper], abs=0.0051)
    assert (p == "< 0.001") == (test.p_value < 0.001)
    assert ahead == f"{sum(t.difference > 0 for t in each)} of 2"
    assert int(clear) == sum(d > 0 for d in clearly)
    assert int(behind) == sum(d < 0 for d in clearly)


@settings(max_examples=25)
@given(scores=st.lists(st.tuples(score, score, score), min_size=2, max_size=5))
def test_our_weights_are_compared_with_each_tuned_loss(scores):
    """What is not tuned, and other losses with our weights, are not in the table."""
    results = []
    methods = ("DSCH, recommended", "CSQ, tuned", "DNPH, tuned")
    for seed, row in enumerate(scores):
        for method, value in zip(methods, row, strict=True):
            cell = {"image->text": value}
            results.append(made_result(method, seed, cell, views=("leak_free",)))
        results.append(made_result("SCH, recommended", seed, cell, views=("leak_free",)))
    for result in results:
        result.settings["data"].update(seed=result.seed, queries=1, train=5)
    *_, table = benchmark._across_tables({"one": results, "other": results[:1]})
    ours, *others = 100 * np.array(scores).T
    tests = [SeedTest.of(ours - other, 0.2) for other in others]
    corrected = holm([test.p_value for test in tests])
    for row, name, test, p in zip(table.rows, ("CSQ", "DNPH"), tests, corrected, strict=True):
        loss, cell, missing = row
        numbers = [float(n.strip("[],").replace("−", "-")) for n in cell.text.split()]
        assert (loss.text, missing.text, cell.bold) == (name, "–", p <= 0.05)
        assert numbers == pytest.approx([test.difference, test.lower, test.upper], abs=0.0051)


def check_other_queries(results):
    """They are drawn from those of all seeds."""
    rows = benchmark._differences_tables(results)[1].rows
    (row,) = [row for row in rows if row[0].text == "DNPH"]
    lower, upper = (float(end.replace("−", "-")) for end in row[3].text.strip("[]").split(", "))
    runs = {(result.method, result.seed): result.query_ap for result in results}
    by_query = []  # of each seed, the mean over tasks of what the two methods differ by
    for seed in (0, 1):
        sides = [runs[method, seed] for method in ("DSCH, tuned", "DNPH")]
        means = [
            np.mean([ap for (_, view, _), ap in side.items() if view == "leak_free"], axis=0)
            for side in sides
        ]
        by_query += list(np.subtract(*means))
    assert (lower + upper) / 2 == pytest.approx(
        100 * np.nanmean(by_query), abs=0.1 * (upper - lower)
    )
    assert row[3].bold == (lower > 0 or upper < 0)


def test_means_are_over_cells_first_and_say_what_is_missing():
    results = [
        made_result("CSQ", seed, {"image->text": 0.2 + 0.1 * seed, "text->image": 0.4})
        for seed in (0, 1)
    ]
    results.append(made_result("CSQ, tuned", 0, {"image->text": 0.5, "text->image": 0.7}))
    results.append(made_result("SCH", 1, status="failed"))
    for result in results:
        for figures in result.epochs.get("last", {}).get("test", {}).values():
            figures["ndcg_graded"] = figures["map_tie_aware"]
    table = benchmark._means_table(results)
    csq, sch = ([cell.text for cell in row] for row in table.rows)
    assert csq[:3] == ["CSQ", "32.50 ± 3.54", "60.00"]
    assert sch == ["SCH", *["–"] * 6]
    assert "Not finished: SCH-k32-seed1" in table.caption


def test_other_queries_are_not_drawn_of_a_method_that_lacks_runs():
    """A mean over one code length beside one over two would be of other cells."""
    ap = {"image->text": np.array([0.2, 0.6])}
    cells = [("SCH", 16), *product(("DSCH, tuned", "CSQ"), (16, 32))]
    shares = {"image->text": 0.4}
    results = [
        made_result(method, seed, shares, k, query_ap=ap)
        for (method, k), seed in product(cells, (0, 1))
    ]
    assert {place[0] for place in query_means(results)} == {"DSCH, tuned", "CSQ"}
    cells = {row[0].text: row[3].text for row in benchmark._differences_tables(results)[0].rows}
    assert cells == {"CSQ": "[+0.00, +0.00]", "SCH": "–"}


def test_collections_are_compared_by_ranks_made_of_their_own_tables(
    base, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(tuning, "_RATE_FACTORS", (1.0,))
    choices = {"dsch": {"kappa_q": (0.3,)}, "csq": {"lambda_q": (0.05,)}}
    monkeypatch.setattr(tuning, "CHOICES", choices)
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
        means = benchmark._method_means(results, "leak_free", "map_tie_aware")
        scores[name] = {loss: np.mean(means[f"{loss}, tuned"]) for loss in ("DSCH", "CSQ")}
    for loss, rank, _, *cells in rows:
        assert [cells[0].strip("*"), cells[2].strip("*")] == [
            f"{100 * each[loss]:.2f}" for each in scores.values()
        ]
        better = [sum(other > each[loss] for other in each.values()) for each in scores.values()]
        assert rank.strip("*") == f"{1 + np.mean(better):.1f}"
    every = read_runs(folder / "runs.csv")
    assert set(every) == {"features", "benchmark"}
    published, recommendation = benchmark._across_tables(every)[1:]
    assert {row[0].text for row in published.rows} == {"DSCH", "CSQ", "DSCH, recommended"}
    assert [row[0].text for row in recommendation.rows] == ["DSCH", "CSQ"]
    assert to_markdown(published) == (folder / "tables" / "ranks-as-published.md").read_text()
    for fixed in by_method(every["features"])["DSCH, recommended"]:
        assert fixed.settings["loss"]["kappa_q"] == 0.3
        assert tuning.rate_of(fixed) == 1e-3
    assert_refused(capsys, "experiment", "losses", *data, says="takes one collection")


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
