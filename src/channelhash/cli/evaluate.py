"""``channelhash encode``, ``evaluate``, ``recall``: codes and scores."""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from channelhash.cli import shared, when_stopped
from channelhash.cli.shared import percent
from channelhash.errors import InputError, hide_secrets
from channelhash.utils.addresses import Place, place

_Split = Literal["test", "validation"]
_Checkpoint = Literal["last", "best"]
#: Whose released evaluation code is followed, see `metrics.conventions`; a test compares them.
_ConventionName = StrEnum("_ConventionName", ["qinlab", "sch", "hyp2"])
_Engine = Literal["local", "ray"]
_EngineName = Annotated[
    _Engine | None, typer.Option(help="Process shards here (local, the default) or on Ray.")
]
_WorkerCount = Annotated[
    int | None,
    typer.Option(min=1, help="With --engine ray: workers; default: one per core or GPU."),
]


def encode(
    run: shared.SavedModel,
    data: str = typer.Option(
        ...,
        help="A table, vectors, features or a folder of images; for shards any address.",
    ),
    out: str = typer.Option(
        ..., help="Parquet file to write, or a folder of shards (a name without ending)."
    ),
    root: str | None = typer.Option(
        None, help="Folder that a table's image paths are relative to."
    ),
    skip_bad: shared.SkipBad = False,
    engine: _EngineName = None,
    workers: _WorkerCount = None,
    shard_items: int | None = typer.Option(
        None, min=1, help="For shards: items per shard, 16384 by default."
    ),
    trust_code: shared.TrustCode = False,
    as_json: shared.AsJson = False,
) -> None:
    """Write the hash codes of a table, of features, or of images, as one file or as shards.

    Shards are for collections of any size: memory stays small, bad items are listed in a file, and
    the same command continues an interrupted job.

    Example: channelhash encode runs/table --data items.csv --root images --out codes.parquet

    Example: channelhash encode runs/table --data s3://bucket/shards --out codes --engine ray
    """
    target = place(out)
    if target.suffix == ".parquet":
        of_shards = {"--engine": engine, "--workers": workers, "--shard-items": shard_items}
        for option, value in of_shards.items():
            if value:
                raise InputError(
                    f"{option}: is for shards; name a folder instead of the file {out}, or leave "
                    "it out"
                )
        result = _encode_one(run, Path(data), target, Path(root) if root else None, skip_bad)
        where = out
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
        where = f"{result['shards']} shards in {out}"
    codes = " and ".join(result["modalities"])
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
    from channelhash.data.vectors import content_of, load_vectors
    from channelhash.indexing.vectors import source_of
    from channelhash.models import load_model
    from channelhash.models.hash_model import encode_records

    model = load_model(run)
    if content_of(data) == "vectors":
        records = source_of(load_vectors(data, skip_bad=skip_bad), data).records
    else:
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
    workers: _WorkerCount = None,
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
    of_run = {"--split": split, "--checkpoint": checkpoint, "--leak-free": leak_free}
    sources: dict[str, tuple[object, Mapping[str, object]]] = {
        "a run's folder": (run, of_run),
        "--query and --database": (query or database, {"--engine": engine, "--workers": workers}),
        "--codes": (codes, {"--array": array, "--task": task}),
    }
    _check_sources(sources)
    if out:
        _check_out(out, run)
    when_stopped("scores are written at the end, none are lost")
    files_line = f"Scores in {out / 'metrics.json'}, plots in {out / 'plots'}" if out else ""
    if run:
        from channelhash.runs.evaluate import evaluate_run, plots_folder

        split = split or "test"
        checkpoint = checkpoint or "last"
        with shared.progress_bars() as progress:
            result = evaluate_run(run, split, checkpoint, leak_free, progress, convention)
        searched = "training rows left out of" if leak_free else "all of"
        title = f"{run}, {split} split, {searched} the retrieval set"
        files_line = f"Plots in {plots_folder(run, split, checkpoint, leak_free)}"
    elif codes:
        from channelhash.metrics.report import evaluate_export

        result = evaluate_export(codes, _pairs(array), task, out, convention)
        title = str(codes)
    else:
        result = _evaluate_files(query, database, engine, workers, out, convention)
        title = hide_secrets(f"{query} searches {database}")
    shared.print_either(result, as_json, _print_result, result, title, files_line)


def _check_out(out: Path, run: Path | None) -> None:
    """Check before the work that scores and plots can be written into a folder."""
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out}: is a file; name a folder")
    if run:
        raise InputError("--out: a run's scores and plots go into its own folder; leave it out")
    if find_spec("matplotlib") is None:
        raise InputError(
            "--out: leave it out, or install what draws plots: pip install 'channelhash[report]'"
        )


def _evaluate_files(
    query: str | None,
    database: str | None,
    engine: _Engine | None,
    workers: int | None,
    out: Path | None,
    conventions: Sequence[str],
) -> dict[str, Any]:
    """Score files of codes: a database in shards part by part, any other at once."""
    if not (query and database):
        raise InputError("--query and --database go together; one of them is missing")
    queries = place(query)
    items = place(database)
    if not (engine or workers or items.is_dir() or "*" in items.name):
        from channelhash.metrics.report import evaluate_code_files

        return evaluate_code_files(queries, items, out, conventions)
    from channelhash import bulk

    on = bulk.workers.Workers(engine or "local", workers)
    with shared.progress_bars() as progress:
        return bulk.evaluate_shards(queries, items, on, out, progress("evaluate"), conventions)


def _print_result(result: dict[str, Any], title: str, files_line: str) -> None:
    """Print all scores in percent, a column for each task, and the line about the files that hold
    them; without labels no plots were drawn.
    """
    tasks = result["tasks"]
    reports = list(tasks.values())
    has_labels = "map_tie_aware" in reports[0]
    if not has_labels:
        typer.echo(
            "No labels: each query's own counterpart is searched (Recall@K, median rank); mAP "
            "needs labels"
        )
        files_line = files_line.split(", plots")[0] if files_line.startswith("Scores") else ""
    rows = []
    for label in _SCORES if has_labels else _COUNTS:
        rows.append([label, *map(_SCORES[label], reports)])
    rows += _cutoff_rows(reports) + _convention_rows(reports)
    if "recall_at" in reports[0]:
        rows += _rank_rows(reports)
    title = f"{title}, {result['n_bits']} bits, in %"
    shared.print_table(title, ["score", *map(_arrow, tasks)], rows, numeric=True)
    left_out = max(report.get("own_left_out", 0) for report in reports)
    if left_out:
        typer.echo(
            f"{left_out:,} times a query was in the database itself (same id): left out, as no "
            "answer to itself"
        )
    if files_line:
        typer.echo(files_line)


def _cutoff_rows(reports: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return a row for each score of the first K answers."""
    rows = []
    for key, metric in {"map_at": "mAP", "precision_at": "P", "recall_at": "Recall"}.items():
        for cutoff in reports[0].get(key, ()):
            cells = [percent(report.get(key, {}).get(cutoff)) for report in reports]
            rows.append([f"{metric}@{cutoff}", *cells])
    return rows


def _rank_rows(reports: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return the rows of the median rank, and of how many items were searched for it."""
    rows = []
    for label, key in {"median rank": "median_rank", "items of Recall@": "recall_items"}.items():
        cells = [f"{report[key]:,.10g}" if key in report else "–" for report in reports]
        rows.append([label, *cells])
    return rows


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
    """Return two rows a figure, what a stable sort gives and the range of any sort, with the
    digits that papers print.
    """
    rows = []
    for name, figures in reports[0].get("conventions", {}).items():
        for figure in figures:
            cells = [report["conventions"][name][figure] for report in reports]
            label = f"{name}: {figure.replace('map', 'mAP')}"
            in_order = [percent(cell["in_order"], 2) for cell in cells]
            ranges = [
                f"{percent(cell['lower'], 2)} – {percent(cell['upper'], 2)}" for cell in cells
            ]
            rows.append([f"{label}, stable sort", *in_order])
            rows.append([f"{label}, any sort", *ranges])
    return rows


def _print_recall(result: Mapping[str, Any]) -> None:
    """Print what `evaluate_pairs` returns, a table for each task."""
    tests = f", mean of {result['tests']} tests" if result["tests"] > 1 else ""
    rankings = result["rankings"]
    for task, first in next(iter(rankings.values())).items():
        rows = []
        for ranking, scores in rankings.items():
            shares = map(percent, scores[task]["recall_at"].values())
            rows.append([ranking, *shares, f"{scores[task]['median_rank']:.1f}"])
        header = ["ranking", *(f"R@{k}" for k in first["recall_at"]), "median rank"]
        title = f"{_arrow(task)}, recall in %, {result['images']:,} images{tests}"
        shared.print_table(title, header, rows, numeric=True)


def _arrow(task: str) -> str:
    return task.replace("->", " → ")


#: Label of a row -> its cell from the report of a task.
_SCORES: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "mAP tie-aware": lambda r: percent(r["map_tie_aware"]),
    "mAP, ties worst": lambda r: percent(r["map_lower"]),
    "mAP, ties best": lambda r: percent(r["map_upper"]),
    "mAP, ties in database order": lambda r: percent(r["map_in_order"]),
    "mAP tie-aware, 95 % interval": lambda r: (
        f"{percent(r['map_interval']['lower'])} – {percent(r['map_interval']['upper'])}"
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
#: The scores that need no labels.
_COUNTS = ("queries counted", "queries skipped")
