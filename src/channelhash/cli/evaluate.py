"""``channelhash encode``, ``evaluate``, ``recall``, ``experiment``, ``report``, ``landscape``:
codes and scores.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from channelhash.cli import same_command, shared, when_stopped
from channelhash.cli.shared import percent
from channelhash.errors import InputError, JobError, hide_secrets
from channelhash.lab.experiments.studies import EXPERIMENTS
from channelhash.utils.addresses import Place, place

_Split = Literal["test", "validation"]
_Checkpoint = Literal["last", "best"]
#: Whose released evaluation code is followed, see `metrics.conventions`; a test compares them.
_ConventionName = StrEnum("_ConventionName", ["qinlab", "sch", "hyp2"])
_Engine = Literal["local", "ray"]
_EngineName = Annotated[
    _Engine | None, typer.Option(help="Process shards here (local, the default) or on Ray.")
]
_Workers = Annotated[
    int | None,
    typer.Option(min=1, help="With --engine ray: workers; default: one per core or GPU."),
]


def encode(
    run: shared.SavedModel,
    data: str = typer.Option(
        ..., help="A table, a file of features or a folder of pictures; for shards any address."
    ),
    out: str = typer.Option(
        ..., help="Parquet file to write, or a folder of shards (a name without ending)."
    ),
    root: str | None = typer.Option(
        None, help="Folder that the table's picture paths are relative to."
    ),
    skip_bad: shared.SkipBad = False,
    engine: _EngineName = None,
    workers: _Workers = None,
    shard_items: int | None = typer.Option(
        None, min=1, help="For shards: items per shard, 16384 by default."
    ),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Write the hash codes of a table, of features, or of pictures, as one file or as shards.

    Shards are for collections of any size: memory stays small, bad items are listed in a file, and
    the same command continues an interrupted job.

    Example: channelhash encode runs/table --data items.csv --root images --out codes.parquet

    Example: channelhash encode runs/table --data s3://bucket/shards --out codes --engine ray
    """
    target = place(out)
    if target.suffix == ".parquet":
        for option, value in {
            "--engine": engine,
            "--workers": workers,
            "--shard-items": shard_items,
        }.items():
            if value:
                raise InputError(
                    f"{option}: is for shards; name a folder instead of the file {out}, or leave "
                    "it out"
                )
        result = _encode_one(run, Path(data), target, Path(root) if root else None, skip_bad)
    else:
        from channelhash import bulk

        if skip_bad:
            raise InputError(
                "--skip-bad: bad items never stop the encoding of shards; leave it out"
            )
        on = bulk.workers.Workers(engine or "local", workers)
        with shared.progress_bars(f"finished shards are kept in {out}") as progress:
            items = shard_items or bulk.SHARD_ITEMS
            result = bulk.encode_bulk(run, data, target, on, root, items, progress("encode"))
    codes = " and ".join(result["modalities"])
    where = f"{result['shards']} shards in {out}" if "shards" in result else out
    lines = [f"{result['items']} items, {result['n_bits']} bits, {codes} codes in {where}"]
    if result.get("bad"):
        lines.append(f"{result['bad']} items could not be encoded: {target / 'bad.jsonl'}")
    shared.show(result, as_json, *lines)


def _encode_one(
    run: Path, data: Path, out: Place, root: Path | None, skip_bad: bool
) -> dict[str, Any]:
    """Encode all items at once, into one file."""
    from channelhash.data.collection import readable
    from channelhash.data.folder import load_any
    from channelhash.models import load_hash_model
    from channelhash.models.hash_model import encode_records

    model = load_hash_model(run)
    records = load_any(data, root, skip_bad)
    if skip_bad and not data.is_dir():  # those of a folder are decoded as they are found
        records = readable(records)
    with shared.progress_bars() as progress:
        codes = encode_records(model, records, progress("encode"))
    codes.save(out)
    shared.say_left_out(records.problems)
    return {
        "out": str(out),
        "items": len(codes),
        "n_bits": codes.n_bits,
        "modalities": list(codes.codes),
        "removed": records.removed,
        "problems": list(records.problems),
    }


def evaluate(
    run: Path | None = typer.Argument(None, help="A run's folder."),
    split: _Split | None = typer.Option(
        None, help="For a run: Q against R (test, the default), or V_q against V_r."
    ),
    checkpoint: _Checkpoint | None = typer.Option(
        None, help="For a run: the last epoch (the default), or the best."
    ),
    leak_free: bool = typer.Option(
        False, "--leak-free", help="For a run: no training rows in the retrieval set."
    ),
    query: str | None = typer.Option(
        None, help="Instead of a run: a Parquet file of query codes with labels."
    ),
    database: str | None = typer.Option(
        None, help="With --query: database codes, Parquet or a folder of shards."
    ),
    engine: _EngineName = None,
    workers: _Workers = None,
    codes: Path | None = typer.Option(
        None, help="Instead of a run: .mat, .npz, .h5 or .npy with B_q, B_r, L_q, L_r."
    ),
    array: list[str] = typer.Option(
        [], help="With --codes: the file's name of an array, such as B_q=codes_test."
    ),
    task: str | None = typer.Option(
        None, help='With --codes: modalities of B_q and B_r, such as "image->text".'
    ),
    out: Path | None = typer.Option(
        None, help="With --query or --codes: folder for metrics.json and plots."
    ),
    convention: list[_ConventionName] = typer.Option([], help="Also what others' code prints."),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Compute all scores of all tasks, tie-aware, for a run, for code files, or for another
    toolbox's codes.

    A run's scores and plots go into its own folder.

    Example: channelhash evaluate runs/table

    Example: channelhash evaluate --codes theirs.mat --out theirs

    Example: channelhash evaluate --query q.parquet --database shards --engine ray
    """
    sources: dict[str, tuple[object, dict[str, object]]] = {
        "a run's folder": (
            run,
            {"--split": split, "--checkpoint": checkpoint, "--leak-free": leak_free},
        ),
        "--query and --database": (query or database, {"--engine": engine, "--workers": workers}),
        "--codes": (codes, {"--array": array, "--task": task}),
    }
    _check_sources(sources)
    if out and out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is a file; name a folder")
    if run and out:
        raise InputError("--out: a run's scores and plots go into its own folder; leave it out")
    if out and find_spec("matplotlib") is None:  # said before the work and not behind it
        raise InputError(
            "--out: leave it out, or install what draws plots: pip install 'channelhash[report]'"
        )
    files_line = f"Scores in {out / 'metrics.json'}, plots in {out / 'plots'}" if out else ""
    when_stopped("scores are written at the end, none are lost")
    if run:
        from channelhash.runs.evaluate import evaluate_run, plots_folder

        split, checkpoint = split or "test", checkpoint or "last"
        with shared.progress_bars() as progress:
            result = evaluate_run(run, split, checkpoint, leak_free, progress, convention)
        title = (
            f"{run}, {split} split, {'training rows left out of' if leak_free else 'all of'} the "
            "retrieval set"
        )
        files_line = f"Plots in {plots_folder(run, split, checkpoint, leak_free)}"
    elif codes:
        from channelhash.metrics.report import evaluate_export

        result = evaluate_export(codes, _pairs(array), task, out, convention)
        title = str(codes)
    elif query and database:
        files = place(query), place(database)
        title = hide_secrets(f"{query} searches {database}")
        if engine or workers or files[1].is_dir() or "*" in files[1].name:  # part by part
            from channelhash import bulk

            on = bulk.workers.Workers(engine or "local", workers)
            with shared.progress_bars() as progress:
                result = bulk.evaluate_shards(*files, on, out, progress("evaluate"), convention)
        else:
            from channelhash.metrics.report import evaluate_code_files

            result = evaluate_code_files(*files, out, convention)
    else:
        raise InputError("--query and --database go together; one of them is missing")
    shared.print_either(result, as_json, _print_result, result, title, files_line)


def _print_result(result: dict[str, Any], title: str, files_line: str) -> None:
    """Print all scores of each task in percent, one column per task, and a line that says which
    files hold them.

    Without labels no plots were drawn.
    """
    tasks = result["tasks"]
    shown = _SCORES
    reports = list(tasks.values())
    if "map_tie_aware" not in reports[0]:
        typer.echo(
            "No labels: each query's own counterpart is searched (Recall@K, median rank); mAP "
            "needs labels"
        )
        files_line = files_line.split(", plots")[0] if files_line.startswith("Scores") else ""
        shown = {label: _SCORES[label] for label in ("queries counted", "queries skipped")}
    rows = [[label, *map(format_score, reports)] for label, format_score in shown.items()]
    for key, metric in {"map_at": "mAP", "precision_at": "P", "recall_at": "Recall"}.items():
        for z in reports[0].get(key, ()):
            rows.append(
                [f"{metric}@{z}", *(percent(report.get(key, {}).get(z)) for report in reports)]
            )
    rows += _convention_rows(reports)
    if "recall_at" in reports[0]:
        for label, key in {
            "median rank": "median_rank",
            "items of Recall@": "recall_items",
        }.items():
            rows.append(
                [label, *(f"{report[key]:,.10g}" if key in report else "–" for report in reports)]
            )
    title = f"{title}, {result['n_bits']} bits, in %"
    shared.print_table(title, ["score", *map(_arrow, tasks)], rows, numeric=True)
    if left_out := max(report.get("own_left_out", 0) for report in reports):
        typer.echo(
            f"{left_out:,} times a query was in the database itself (same id): left out, as no "
            "answer to itself"
        )
    if files_line:
        typer.echo(files_line)


def _check_sources(sources: Mapping[str, tuple[object, Mapping[str, object]]]) -> None:
    """Check that exactly one source is given, and no option that belongs to another one."""
    named = [name for name, (value, _) in sources.items() if value]
    if len(named) != 1:
        raise InputError(f"give one of {'; '.join(sources)}. Given: {'; '.join(named) or 'none'}")
    for source, (_, options) in sources.items():
        for option, value in options.items():
            if value and source != named[0]:
                raise InputError(f"{option}: belongs to {source}, not to {named[0]}; leave it out")


def _pairs(assignments: list[str]) -> dict[str, str]:
    """Return ``NAME=ARRAY`` options as name -> array."""
    pairs = {}
    for assignment in assignments:
        name, _, array = assignment.partition("=")
        if not (name and array):
            raise InputError(
                f"--array {assignment}: write it as NAME=ARRAY, such as B_q=codes_test"
            )
        pairs[name] = array
    return pairs


def recall(
    model: Path = typer.Argument(..., help="A run's folder, a saved model, or photo."),
    data: Path = typer.Argument(
        ..., help="A table of images and texts; of a run's own only test queries ask."
    ),
    images: int | None = typer.Option(
        None, min=1, help="Images of a test, e.g. 1000: means of all such tests."
    ),
    checkpoint: _Checkpoint = typer.Option("last", help="For a run: the last epoch, or the best."),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Say how often texts find their images and images their texts: by real values, by bits, and by
    both.

    Example: channelhash recall photo captions.csv
    """
    from channelhash.runs.evaluate import evaluate_pairs

    with shared.progress_bars(
        "features of images are kept, scores are printed at the end"
    ) as progress:
        result = evaluate_pairs(model, data, images, checkpoint, progress)
    shared.print_either(result, as_json, _print_recall, result)


def _convention_rows(reports: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return two rows a figure: what a stable sort gives, and the range of any sort; digits as
    papers print them.
    """
    rows = []
    for name, figures in reports[0].get("conventions", {}).items():
        for figure in figures:
            cells = [report["conventions"][name][figure] for report in reports]
            label = f"{name}: {figure.replace('map', 'mAP')}"
            rows.append(
                [f"{label}, stable sort", *(percent(cell["in_order"], 2) for cell in cells)]
            )
            ends = ([percent(cell[end], 2) for end in ("lower", "upper")] for cell in cells)
            rows.append([f"{label}, any sort", *map(" – ".join, ends)])
    return rows


def _print_recall(result: Mapping[str, Any]) -> None:
    """Print what `evaluate_pairs` returns, a table for each task."""
    tests = f", mean of {result['tests']} tests" if result["tests"] > 1 else ""
    for task in next(iter(result["rankings"].values())):
        rows = []
        for ranking, scores in result["rankings"].items():
            recall, rank = scores[task]["recall_at"], scores[task]["median_rank"]
            rows.append([ranking, *map(percent, recall.values()), f"{rank:.1f}"])
        title = f"{_arrow(task)}, recall in %, {result['images']:,} images{tests}"
        shared.print_table(
            title, ["ranking", *(f"R@{k}" for k in recall), "median rank"], rows, numeric=True
        )


def _arrow(task: str) -> str:
    return task.replace("->", " → ")


_SCORES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "mAP tie-aware": lambda r: percent(r["map_tie_aware"]),
    "mAP, ties worst": lambda r: percent(r["map_lower"]),
    "mAP, ties best": lambda r: percent(r["map_upper"]),
    "mAP, ties in database order": lambda r: percent(r["map_in_order"]),
    "mAP tie-aware, 95 % interval": lambda r: " – ".join(
        percent(r["map_interval"][end]) for end in ("lower", "upper")
    ),
    "chance level": lambda r: percent(r["chance"]),
    "NDCG": lambda r: percent(r["ndcg"]),
    "NDCG by label similarity": lambda r: percent(r["ndcg_graded"]),
    "ROC-AUC micro": lambda r: percent(r["roc_auc_micro"]),
    "ROC-AUC macro": lambda r: percent(r["roc_auc_macro"]),
    "precision within 2 bits": lambda r: percent(r["radius_2"]["precision"]),
    "codes in use": lambda r: percent(r.get("codes_in_use")),
    "queries counted": lambda r: str(r["queries"]),
    "queries skipped": lambda r: str(r["skipped"]),
}


def experiment(
    name: str = typer.Argument(
        ..., help=f"Which grid: {', '.join(EXPERIMENTS)}; or python:module:NAME."
    ),
    dataset: str | None = typer.Option(
        None, help="Base configuration: synthetic, mirflickr25k or nuswide."
    ),
    config: Path | None = typer.Option(
        None, help="Base configuration as a YAML file, instead of --dataset."
    ),
    preset: str | None = typer.Option(
        None, help="Base configuration by its name (config list), instead of --dataset."
    ),
    data: list[str] = typer.Option(
        [], help="Folder or file of the data; for benchmark also several NAME=PLACE."
    ),
    settings: shared.Overrides = [],
    bits: str | None = typer.Option(None, help="Code lengths, e.g. 16,32; the paper's by default."),
    seeds: int = typer.Option(3, min=1, help="Runs per cell of the grid, with the seeds 0, 1, ..."),
    quick: shared.Quick = False,
    out: Path | None = typer.Option(
        None, help="The grid's folder; experiments/<name>-<data> by default."
    ),
    jobs: int = typer.Option(1, min=1, help="Number of runs at a time."),
    devices: str | None = typer.Option(
        None, help="Devices that the jobs use in turn, e.g. cuda:0,cuda:1."
    ),
    losses: str | None = typer.Option(
        None, help="Losses instead of the experiment's: dsch,python:mymodule:MyLoss."
    ),
    dry_run: bool = typer.Option(
        False, "--dry-run", help="Check all, count runs and trials, time a few steps."
    ),
    as_json: shared.AsJson = False,
) -> None:
    """Train and evaluate a grid of runs, and write its tables and plots. Finished runs are never
    repeated.

    Example: channelhash experiment losses --dataset synthetic --quick

    Example: channelhash experiment benchmark --data features.npz --dry-run
    """
    from channelhash.lab.experiments import experiment as lab
    from channelhash.lab.experiments.runner import Execution
    from channelhash.presets import configuration_path
    from channelhash.utils.typed_settings import trusting

    study = lab.load_experiment(name)
    if not (config or preset or dataset or quick):
        preset = study.preset or None
    config = configuration_path(config, preset)
    dataset = dataset or "synthetic"
    grid_name = f"{study.name}-{config.stem if config else dataset}{'-quick' if quick else ''}"
    folder = out or Path("experiments") / grid_name
    several = len(data) > 1 or any("=" in place and not Path(place).exists() for place in data)
    place = Path(data[0]) if data and not several else None
    base = lab.base_configuration(config or dataset, folder, place, settings, quick)
    bases = lab.collection_bases(study, base, data, settings) if several else {"": base}
    command = shlex.join(same_command())
    names = losses.split(",") if losses is not None else ()
    try:
        lengths = [int(part) for part in bits.split(",")] if bits else None
    except ValueError:
        raise InputError(f"--bits {bits}: write code lengths as 16,32,64") from None
    grids = {
        name: lab.make_grid(study, each, lengths, seeds, names, command, name)
        for name, each in bases.items()
    }
    if dry_run:
        trials = {name: study.all_trials(grid) for name, grid in grids.items()}
        plans = [plan for name, grid in grids.items() for plan in grid.plan(trials[name])]
        # The features of frozen encoders are kept for all runs.
        seconds = sum(
            plan["seconds"]["features"] + plan["runs"] * plan["seconds"]["training"]
            for plan in plans
        )
        runs = [run.name for grid in grids.values() for run in grid.runs]
        total = {
            "runs": len(runs),
            "trials": sum(map(len, trials.values())),
            "seconds": round(seconds, 1),
        }
        outline = {"runs": runs, "plans": plans, "total": total}
        shared.print_either(outline, as_json, _print_plans, plans, total, seconds)
        return
    places = devices.split(",") if devices else ()
    message = f"finished runs and the last checkpoints of the others are kept in {folder}"
    code = [name for grid in grids.values() for name in grid.python_names]
    with trusting(code), shared.progress_bars(message) as progress:
        results, tables = lab.run_grids(
            study, grids, folder, Execution(jobs, places, shared.say, progress)
        )
    summary = {
        "runs": [result.summary() for result in results],
        "tables": [str(path) for path in tables],
    }
    table = next(path for path in tables if path.suffix == ".md").read_text(encoding="utf-8")
    files_line = (
        f"All tables, plots and scores are in {folder}. Next: channelhash report "
        f"{folder / next(iter(grids))}"
    )
    shared.show(summary, as_json, table, files_line)
    if failed := [result for result in results if result.status != "finished"]:
        raise JobError(
            f"{len(failed)} of {len(results)} runs failed, the first: {failed[0].name}: "
            f"{failed[0].error}"
        )


def _print_plans(
    plans: Sequence[Mapping[str, Any]], total: Mapping[str, Any], seconds: float
) -> None:
    """Print what grids would train, and for how long."""
    for plan in plans:
        each = {key: value for key, value in plan.items() if key not in ("title", "runs", "model")}
        shared.print_plan(
            f"{plan['title']}: {plan['runs']} trainings of {plan['model']}, each", each
        )
    time = shared.clock(seconds)
    typer.echo(
        f"{total['runs']} runs and {total['trials']} trials: about {time} of training; scores come "
        "on top"
    )


def report(
    folder: Path = typer.Argument(..., metavar="DIR", help="Folder of a run or of an experiment."),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Write one HTML page about a run or an experiment, DIR/report.html, that needs no other file.

    How good it is beside chance, retrieval examples, training curve, plots, scores, data, health of
    the codes, configuration, environment, and the command to repeat it. The page loads nothing and
    can be passed on as it is.

    Example: channelhash report runs/table
    """
    from channelhash.lab.report.grid_page import write_report

    when_stopped("the page is written at the end")
    path = write_report(folder)
    shared.show({"report": path}, as_json, f"Report in {path}")


def landscape(
    out: Path = typer.Option(Path("landscape.html"), help="Page to write."),
    as_json: shared.AsJson = False,
) -> None:
    """Draw what a pair costs under SCH and DSCH, over similarity and distance, on a page with
    sliders.

    The page is one file and needs no network: open it in a browser.

    Example: channelhash landscape --out landscape.html
    """
    from channelhash.lab.experiments.landscape import write_page

    if out.is_dir():
        raise InputError(
            f"--out {out}: is a folder; name the page, such as {out / 'landscape.html'}"
        )
    write_page(out)
    shared.show({"page": str(out)}, as_json, f"Page in {out}; open it in a browser")
