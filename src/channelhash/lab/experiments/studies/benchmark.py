"""``experiment benchmark``: every loss at the best settings of its trials, one for all collections
and one for each; as many trials of each loss.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from channelhash.lab.experiments.comparisons import (
    SeedTest,
    common_seeds,
    difference_rows,
    in_order,
    is_clear,
    ranks_table,
    split_ratio,
)
from channelhash.lab.experiments.experiment import Design, Experiment, GridRun, Result, Table
from channelhash.lab.experiments.results import Sections, by_method, finished
from channelhash.lab.experiments.studies.tuning import (
    ONE_SETTING,
    RECOMMENDED,
    TRIALS,
    TUNED,
    choose_settings,
    chosen_table,
    drawn_trials,
    loss_of,
)
from channelhash.lab.experiments.tables import VIEW_NAMES, all_views, losses_table
from channelhash.losses import PUBLISHED

#: The losses that are compared: name in the tables -> in the registry.
_NAMES = {
    "DSCH": "dsch",
    "SCH": "sch",
    "SCH, authors' code": "sch-original",
    "TDSRDH": "tdsrdh",
    "RSCH": "rsch",
    "BSCH": "bsch",
    "TALR": "talr",
    "CSQ": "csq",
    "HyP² / DSPH": "hyp2",
    "DCGH": "dcgh",
    "DNPH": "dnph",
    "DNpH (QSMI)": "qsmi",
    "HashNet": "hashnet",
    "IDHN": "idhn",
    "OrthoHash": "orthohash",
    "GreedyHash": "greedyhash",
    "DCMH / DPSH": "dcmh",
}
#: Likewise, their sections ``loss``.
_LOSSES: Sections = {method: {"name": name} for method, name in _NAMES.items()}
#: Our loss as it is compared with all others: with what was chosen elsewhere, or our weights.
_OURS = ("DSCH" + ONE_SETTING, "DSCH" + RECOMMENDED)
#: What stands behind the name of a loss in each form; ``as published`` is of older scores.
_FORMS = {"tuned": TUNED, "one setting": ONE_SETTING, "as published": ""}
#: Steps of each training at least.
_STEPS = 500
#: Task and code length -> seed -> score in [0, 1].
_Cells = dict[tuple[str, int], dict[int, float]]


def _grid(design: Design) -> list[GridRun]:
    """Return each loss in both forms, from its authors' settings if it has any; a loss with our
    weights once.

    >>> from channelhash.lab.experiments.experiment import DATASETS
    >>> design = Design(DATASETS["synthetic"], [32], [0], {"CSQ": {"name": "csq"}})
    >>> [(run.method, run.config.loss.lambda_p) for run in _grid(design)]
    [('CSQ, tuned', 0.2), ('CSQ, one setting', 0.2)]
    """
    runs = []
    for method, loss in design.losses.items():
        if loss.get("recommended"):
            runs += design.runs(method, loss)
            continue
        published = {"published": True} if loss["name"] in PUBLISHED else {}
        for ending in (TUNED, ONE_SETTING):
            runs += design.runs(method + ending, {**published, **loss})
    return runs


def _unseen(results: Sequence[Result]) -> str:
    """Return the view of R∖T that no choice has seen; R∖T itself of older scores."""
    is_apart = any("apart" in result.epochs.get("last", ()) for result in results)
    return "apart" if is_apart else "leak_free"


def _across_tables(results: Mapping[str, Sequence[Result]]) -> list[Table]:
    """Return a table for each form, losses by their mean rank over collections and raw scores, and
    what ours differs by from each loss of a form.
    """
    tables = []
    for form, ending in _FORMS.items():
        scores: dict[tuple[str, str], dict[str, float]] = {}
        for collection, runs in results.items():
            for name, view in {"R∖T": _unseen(runs), "R": "test"}.items():
                means = _method_means(runs, view, "map_tie_aware")
                scores[collection, name] = {
                    loss_of(method): float(np.mean(each))
                    for method, each in means.items()
                    if _has_form(method, ending)
                }
        if any(scores.values()):
            tables.append(ranks_table(scores, form))
    return [*tables, *_recommendation_tables(results)]


def _has_form(method: str, ending: str) -> bool:
    """Return whether a method is of a form; ours with our weights is ranked among the published."""
    if method.endswith(RECOMMENDED):
        return method in _OURS and not ending
    return method == loss_of(method) + ending


def _recommendation_tables(results: Mapping[str, Sequence[Result]]) -> list[Table]:
    """Tabulate, by collection, what ours differs by from each loss of a form on R∖T; no table where
    nothing can be compared.
    """
    tables = []
    for form in ("tuned", "one setting"):
        tests = {name: _tests(runs, _FORMS[form]) for name, runs in results.items()}
        if any(tests.values()):
            tables.append(_recommendation_table(form, tests))
    return tables


def _recommendation_table(form: str, tests: Mapping[str, Mapping[str, SeedTest]]) -> Table:
    counts = []
    for name, each in tests.items():
        clear = [each[loss].difference for loss in is_clear(each)]
        ahead = int(np.sum(np.array(clear) > 0))
        counts.append(f"{name or 'here'}: {ahead} and {len(clear) - ahead} of {len(each)}")
    return Table(
        "recommendation" if form == "tuned" else "recommendation-one-setting",
        f"Ours minus each loss, {form}, tie-aware mAP in points: {VIEW_NAMES['leak_free']}",
        ("Minus", *(name or "Difference" for name in tests)),
        difference_rows(tests),
        f"Ours is {_OURS[0]}, else {_OURS[1]}. Means of all tasks and code lengths, paired by "
        "seed, with 95 % intervals corrected for rows that splits share (Nadeau and Bengio 2003). "
        "Bold: p up to 0.05 by Holm's correction over the losses of a collection. Clearly ahead "
        f"and behind, {'; '.join(counts)}.",
        labels=1,
    )


def _tests(results: Sequence[Result], ending: str) -> dict[str, SeedTest]:
    """Test ours against each loss of a form, by its name, over the mean of all cells on R∖T."""
    methods = by_method(results)
    view = _unseen(results)
    ours = next((method for method in _OURS if method in methods), "")
    first = _cells(methods.get(ours, []), view)
    tests = {}
    for method, runs in methods.items():
        if method == ours or not method.endswith(ending):
            continue
        differences = _differences(first, _cells(runs, view))
        if len(differences) > 1:
            tests[loss_of(method)] = SeedTest.of(differences, split_ratio(finished(results)))
    return tests


def _cells(results: Sequence[Result], view: str, score: str = "map_tie_aware") -> _Cells:
    """Return the scores of one method's finished runs after the last epoch."""
    cells: _Cells = {}
    for result in results:
        for task in result.tasks(view):
            value = result.score(task, score, view)
            cells.setdefault((task, result.n_bits), {})[result.seed] = value
    return cells


def _method_means(results: Sequence[Result], view: str, score: str) -> dict[str, list[float]]:
    """Map each method to the mean score over tasks and code lengths of each seed that has all
    cells, in [0, 1].
    """
    means = {}
    for method, runs in by_method(results).items():
        cells = _cells(runs, view, score).values()
        of_seeds = []
        for seed in common_seeds(cells):
            of_seeds.append(float(np.mean([scores[seed] for scores in cells])))
        if of_seeds:
            means[method] = of_seeds
    return means


def _differences(first: _Cells, other: _Cells) -> list[float]:
    """Return the difference of two methods in points, of the mean of all cells, of each seed that
    all cells of both have.
    """
    cells = [cell for cell in first if cell in other]
    seeds = common_seeds([*(first[cell] for cell in cells), *(other[cell] for cell in cells)])
    rows = [in_order(first[cell], seeds) - in_order(other[cell], seeds) for cell in cells]
    return [100 * float(np.mean(each)) for each in zip(*rows, strict=True)]


def _tables(results: Sequence[Result]) -> list[Table]:
    """Return the tables of one collection, and every cell."""
    return [
        *_across_tables({"": results}),
        *all_views(losses_table, results),
        losses_table(results, score="ndcg_graded"),
    ]


EXPERIMENT = Experiment(
    name="benchmark",
    title="Losses tuned alike",
    losses=_LOSSES,
    grid=_grid,
    choose=choose_settings,
    tables=_tables,
    trials={TRIALS: lambda trials: [chosen_table(trials)]},
    all_trials=drawn_trials,
    across=_across_tables,
    splits=True,
    bits=(32,),
    steps=_STEPS,
    preset="benchmark",
)
