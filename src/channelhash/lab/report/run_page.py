"""The report of one run's folder: whatever is there, and a note on whatever is not."""

import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import yaml

from channelhash.codes import CodeSet
from channelhash.config import read_run_config
from channelhash.errors import InputError
from channelhash.lab.brute_force import nearest
from channelhash.lab.report import page
from channelhash.lab.report.code_health import Bounds, bit_health, channel_health
from channelhash.losses import ChannelLoss, resolve_loss
from channelhash.metrics.plots import arrow
from channelhash.runs.create import create_loss
from channelhash.runs.folder import read_environments
from channelhash.training.validation import MEASURES, measure_of, read_log, selection_score
from channelhash.utils.contact_sheet import bits
from channelhash.utils.decode import read_json, read_yaml_sections, reading, split_lines
from channelhash.utils.image_files import decode, jpeg, open_image

# Kind of pair, as `code_health` names it -> in words.
_PAIR_KINDS = {
    "dissimilar": "no label shared (S = 0)",
    "partly_similar": "some labels shared (0 < S < 1)",
    "identical_labels": "same labels (S = 1)",
}


def _health_blocks(query: CodeSet, database: CodeSet, bounds: Bounds | None) -> list[page.Block]:
    """Describe bits and buckets of the retrieval set, and pairs of queries, which are held out,
    against their channels.
    """
    of_bits = {
        modality: bit_health(packed, database.n_bits) for modality, packed in database.codes.items()
    }
    ones = {
        name: [100 * share for share in sorted(health["ones"])] for name, health in of_bits.items()
    }
    points = {name: list(enumerate(shares, start=1)) for name, shares in ones.items()}
    chart = page.line_chart("Share of ones of each bit, %", "bits, sorted", points)
    blocks: list[page.Block] = [
        page.Text(
            f"Bits and buckets of the {len(database):,} items of the retrieval set; a good bit is "
            "1 for half."
        ),
        _bit_table(of_bits),
        page.Charts([chart] if chart else []),
    ]
    if bounds is None:
        blocks.append(
            page.Text("The run's loss has no channels, so pairs are not held against any.")
        )
    elif query.labels is None:
        blocks.append(page.Text("These codes have no labels, which channels go by."))
    else:
        blocks += [
            page.Text(
                f"Pairs of the {len(query):,} queries, none of which was trained on, against the "
                "channel of the run's "
                "loss: the distances that it allows pairs of such label similarity S."
            ),
            _channel_table(query, bounds),
        ]
    return blocks


_BITS: dict[str, Callable[[Mapping[str, Any]], float | None]] = {
    "bits that are constant": lambda health: health["constant"],
    "share of ones, smallest": lambda health: min(health["ones"]),
    "share of ones, largest": lambda health: max(health["ones"]),
    "entropy of a bit, mean (100 is balanced)": lambda health: float(np.mean(health["entropy"])),
    "|correlation| of two bits, mean": lambda health: health["correlation_mean"],
    "|correlation| of two bits, largest": lambda health: health["correlation_max"],
    "distinct codes / items": lambda health: health["distinct"],
    "items alone with their code": lambda health: health["alone"],
    "items of the most frequent code": lambda health: health["largest_bucket"],
}


def _bit_table(of_bits: Mapping[str, Mapping[str, Any]]) -> page.Table:
    rows = [
        (name, *(page.print_score(read(health)) for health in of_bits.values()))
        for name, read in _BITS.items()
    ]
    return page.Table(["codes", *of_bits], rows, "Bits and buckets; shares in %")


def _channel_table(query: CodeSet, bounds: Bounds) -> page.Table:
    rows = []
    for first, second in combinations_with_replacement(query.codes, 2):
        partner = None if first == second else query.codes[second]
        assert query.labels is not None
        kinds = channel_health(query.codes[first], partner, query.labels, query.n_bits, bounds)
        for kind, health in kinds.items():
            figures = [
                page.print_score(health[name]) for name in ("pairs", "inside", "below", "above")
            ]
            rows.append((f"{first}–{second}, {_PAIR_KINDS[kind]}", *figures))
    header = ["pairs of codes", "pairs", "inside, %", "nearer, %", "farther, %"]
    return page.Table(header, rows, "Pairs and their channels")


_QUERIES = 4
_ANSWERS = 6
_SIDE = 160


def _thumbnail(path: str) -> str:
    """Return an address that holds a small JPEG copy of an image; empty if it cannot be read."""
    try:
        with open_image(path) as opened:
            return page.data_uri(jpeg(decode(opened, 2 * _SIDE), _SIDE), "image/jpeg")
    except OSError:
        return ""


def example_blocks(query: CodeSet, database: CodeSet, notes: list[str]) -> list[page.Block]:
    """Search a few queries of each cross-modal task (of each task where there is one modality)."""
    thumbnails: dict[str, str] = {}
    tasks = page.cross_tasks(f"{a}->{b}" for a in query.codes for b in database.codes)
    answers = [_answers(query, database, task, thumbnails) for task in tasks]
    if lost := sum(not uri for uri in thumbnails.values()):
        notes.append(
            f"{lost} pictures of the examples cannot be read any more; their words are shown."
        )
    right = "" if query.labels is None else " An answer is right if it shares a label."
    return [page.Text(f"Queries spaced evenly over the query set, not chosen.{right}"), *answers]


def _answers(
    query: CodeSet, database: CodeSet, task: str, thumbnails: dict[str, str]
) -> page.Answers:
    modality, searched = task.split("->")
    picked = np.unique(np.linspace(0, len(query) - 1, _QUERIES).astype(int))
    matches = nearest(
        query.codes[modality][picked], database.codes[searched], database.ids, _ANSWERS
    )
    rows = []
    for row, match in zip(picked.tolist(), matches, strict=True):
        cards = [_card(query, row, f"query ({modality})", thumbnails)]
        for item, distance in zip(match.rows.tolist(), match.distances.tolist(), strict=True):
            cards.append(
                _card(
                    database,
                    item,
                    bits(distance),
                    thumbnails,
                    _relevant(query, row, database, item),
                )
            )
        rows.append(cards)
    return page.Answers(
        f"{arrow(task)}: the codes of each {modality}, and the nearest {searched} codes", rows
    )


def _card(
    codes: CodeSet, row: int, heading: str, thumbnails: dict[str, str], right: bool | None = None
) -> page.Card:
    """Show an item with all that is known of it, whichever modality was searched."""
    image = codes.images[row] if codes.images else ""
    if image and image not in thumbnails:
        thumbnails[image] = _thumbnail(image)
    text = codes.texts[row] if codes.texts else ""
    detail = " · ".join(filter(None, (codes.ids[row], ", ".join(codes.names_of(row)))))
    return page.Card(heading, thumbnails.get(image, ""), text, detail, right)


def _relevant(query: CodeSet, row: int, database: CodeSet, item: int) -> bool | None:
    if query.labels is None or database.labels is None:
        return None
    return bool((query.labels[row] & database.labels[item]).any())


_Tasks = Mapping[str, Mapping[str, Any]]

#: Names that people know; any other score is printed under its key. A group's name stands before
#: the inner key.
_NAMES = {
    "map_tie_aware": "mAP tie-aware",
    "map_interval": "mAP tie-aware, 95 % interval over queries:",
    "map_lower": "mAP, ties worst",
    "map_upper": "mAP, ties best",
    "map_in_order": "mAP, ties in database order",
    "map_at": "mAP@",
    "precision_at": "P@",
    "ndcg": "NDCG",
    "ndcg_graded": "NDCG by label similarity",
    "roc_auc_micro": "ROC-AUC micro",
    "roc_auc_micro_every_query": "ROC-AUC micro, skipped queries too",
    "roc_auc_macro": "ROC-AUC macro",
    "roc_auc_macro_queries": "queries of ROC-AUC macro",
    "radius_2": "within 2 bits:",
    "chance": "chance level",
    "codes_in_use": "codes in use",
    "queries": "queries counted",
    "skipped": "queries skipped",
    "recall_at": "Recall@",
    "median_rank": "median rank",
    "recall_items": "items of Recall@",
    "conventions": "as others print it:",
    "empty": "queries that find nothing",
    "by_radius": "by radius:",
    "precision_recall_curve": "all queries together:",
}


def _read_evaluations(folder: Path) -> list[tuple[str, _Tasks]]:
    """Read (title, scores) of everything that a run was evaluated on: ``metrics.json``, and a
    grid's ``result.json``.
    """
    evaluations: list[tuple[str, _Tasks]] = []
    problem = "holds no scores of this version"
    remedy = "evaluate the run again"
    if (path := folder / "metrics.json").exists():
        metrics = read_json(path, problem, remedy)
        title = f"{metrics.get('split', 'test')} split, {metrics.get('checkpoint', 'last')} epoch"
        evaluations.append((title, _check_tasks(metrics.get("tasks"), path)))
    if (path := folder / "result.json").exists():
        content = read_json(path, problem, remedy)
        with reading(path, problem, remedy):
            for checkpoint, views in content["epochs"].items():
                for view, tasks in views.items():
                    title = (
                        f"{view.replace('_', ' ')}{'' if view == 'leak_free' else ' split'}, "
                        f"{checkpoint} epoch"
                    )
                    if title not in dict(evaluations):
                        evaluations.append((title, _check_tasks(tasks, path)))
    return evaluations


def _score_table(title: str, tasks: _Tasks) -> page.Table:
    """Return a table of the single scores; lists (a number a radius) are left out.

    >>> _score_table("test split", {"image->text": {"map_tie_aware": 0.5}}).rows
    [('mAP tie-aware', '50.00')]
    """
    reports = [_flat_scores(report) for report in tasks.values()]
    singles: list[tuple[str, ...]] = []
    for key, inner in dict.fromkeys(place for report in reports for place in report):
        values = [report.get((key, inner)) for report in reports]
        if not any(isinstance(value, list) for value in values):
            show = _print_rank if key == "median_rank" else page.print_score
            singles.append((_score_name(key, inner), *map(show, values)))
    return page.Table(["score", *map(arrow, tasks)], singles, f"{title}; shares in %")


def _flat_scores(report: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Return scores by key and, of groups, inner key: of conventions what is followed, the figure
    and order of ties.
    """
    scores: dict[tuple[str, str], Any] = {}
    for key, value in report.items():
        parts = value if isinstance(value, dict) else {"": value}
        if key == "conventions":
            figures = [
                (f"{name} {figure}", value[name][figure])
                for name in value
                for figure in value[name]
            ]
            parts = {
                f"{figure}, {order}": share
                for figure, shares in figures
                for order, share in shares.items()
            }
        scores |= {(key, inner): part for inner, part in parts.items()}
    return scores


def _print_rank(rank: Any) -> str:
    return f"{rank:,.1f}" if isinstance(rank, int | float) else "–"


def _score_name(key: str, inner: str) -> str:
    name = _NAMES.get(key, key.replace("_", " ") + (":" if inner else ""))
    return (
        f"{name}{inner}"
        if name.endswith("@")
        else f"{name} {_NAMES.get(inner, inner.replace('_', ' '))}".strip()
    )


def _check_tasks(tasks: Any, path: Path) -> _Tasks:
    if (
        not isinstance(tasks, dict)
        or not tasks
        or not all(isinstance(report, dict) for report in tasks.values())
    ):
        raise InputError(
            f"{path.name}: holds no scores by task, as this version writes; evaluate the run again"
        )
    return tasks


_T = TypeVar("_T")
_Sections = Mapping[str, Mapping[str, Any]]

_PROBLEMS = 20
_PARTITIONS = {
    "query": "queries Q",
    "retrieval": "retrieval set R",
    "train": "training rows T (in R)",
    "validation_query": "validation queries (in R∖T)",
    "validation_retrieval": "validation retrieval set (in R∖T)",
}


def run_page(folder: Path) -> page.Page:
    """Return the report of a run."""
    notes: list[str] = []
    settings = read_yaml_sections(
        folder / "config.yaml", "is no run's configuration, which has sections with keys"
    )
    log = _or_note(notes, folder, lambda: read_log(folder / "log.jsonl")) or []
    environments = (
        _or_note(notes, folder, lambda: read_environments(folder / "environment.json")) or []
    )
    evaluations = _or_note(notes, folder, lambda: _read_evaluations(folder)) or []
    codes = _or_note(notes, folder, lambda: read_test_codes(folder))
    bounds = _or_note(notes, folder, lambda: _bounds(folder, codes))
    counts = _or_note(notes, folder, lambda: _partitions(folder)) or {}
    by_labels = page.Standing.by_labels(*codes) if codes else []
    standings = by_labels or page.Standing.by_recall(evaluations[0][1] if evaluations else {})
    notes += _unfinished(folder, settings, log, bool(evaluations), codes is not None)
    if not (folder / "environment.json").exists():
        notes.append("No environment was recorded.")
    examples = example_blocks(*codes, notes) if codes else []
    name = folder.resolve().name
    return page.Page(
        title=name,
        subtitle=_subtitle(settings, counts),
        verdict=page.verdict(standings),
        at_chance=any(standing.at_chance for standing in standings),
        notes=notes,
        facts=[
            (f"{each.measure} {arrow(each.task)}", f"{100 * each.score:.2f} %")
            for each in standings
        ],
        sections=[
            page.Section("How good", _how_good(standings)),
            page.Section("Retrieval examples", examples),
            page.Section("Training", _training(log)),
            page.Section("Plots", page.Plot.read_all(folder / "plots")),
            page.Section("Scores", [_score_table(title, tasks) for title, tasks in evaluations]),
            page.Section("Data", _data(folder, counts, codes)),
            page.Section("Code health", _health_blocks(*codes, bounds) if codes else []),
            page.Section(
                "Configuration", [page.Listing(yaml.safe_dump(settings, sort_keys=False))]
            ),
            page.Section("Environment", environment_blocks(environments)),
            page.Section("Repeat it", _repeat(name)),
        ],
    )


def environment_blocks(environments: Sequence[Mapping[str, Any]]) -> list[page.Block]:
    """Tabulate environments: one column a different environment, one row a recorded fact.

    >>> environment_blocks([{"python": "3.12"}])[0].rows
    [('python', '3.12')]
    """
    if not environments:
        return []
    flat = [_flat(environment) for environment in environments]
    keys = dict.fromkeys(key for environment in flat for key in environment)
    header = (
        ["", "recorded"]
        if len(flat) == 1
        else ["", *[f"part {i}" for i in range(1, len(flat) + 1)]]
    )
    return [
        page.Table(
            header, [(key, *[environment.get(key, "–") for environment in flat]) for key in keys]
        )
    ]


def _or_note(notes: list[str], folder: Path, read: Callable[[], _T]) -> _T | None:
    """Call ``read``; where the file is not of this version, return None and add a note that says
    so.
    """
    try:
        return read()
    except InputError as error:
        # pages are passed on; the folder does not matter
        notes.append(str(error).replace(f"{folder}/", ""))
        return None


def _flat(environment: Mapping[str, Any]) -> dict[str, str]:
    lines: dict[str, str] = {}
    for key, value in environment.items():
        if isinstance(value, dict):
            lines |= {str(name): str(version) for name, version in value.items()}
        elif value is not None:
            lines[key.replace("_", " ")] = str(value)
    return lines


def read_test_codes(folder: Path) -> tuple[CodeSet, CodeSet] | None:
    """Read the codes of queries and database that `evaluate` wrote; None if they are missing or
    empty.
    """
    query, database = (folder / "codes" / f"test-{role}.parquet" for role in ("query", "retrieval"))
    if not query.exists() or not database.exists():
        return None
    sets = CodeSet.load(query), CodeSet.load(database)
    return sets if len(sets[0]) and len(sets[1]) else None


def _bounds(folder: Path, codes: tuple[CodeSet, CodeSet] | None) -> Bounds | None:
    """Return the channels of the run's loss, None without channels; raise `InputError` for another
    version's config.
    """
    config = read_run_config(folder)
    if (
        codes is None
        or codes[1].labels is None
        or not issubclass(resolve_loss(config.loss_name), ChannelLoss)
    ):
        return None
    # A channel depends on code length and settings, not on the number of labels. Where it depends
    # on the labels of a batch, those of the retrieval set stand for them.
    channels = create_loss(config, n_labels=0).channels
    return None if channels is None else channels.bounds_for(torch.from_numpy(codes[1].labels))


def _partitions(folder: Path) -> dict[str, int]:
    if not (path := folder / "splits.json").exists():
        return {}
    with reading(path, "not the splits of this version"):
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return {str(name): len(part) for name, part in rows.items()}


def _unfinished(
    folder: Path, settings: _Sections, log: Sequence[Any], evaluated: bool, encoded: bool
) -> list[str]:
    name = shlex.quote(folder.resolve().name)
    if not (folder / "model" / "config.json").exists():
        epochs = settings.get("train", {}).get("epochs", "?")
        return [
            f"Training has not ended: {len(log)} of {epochs} epochs are done. "
            f"`channelhash train {name}/config.yaml --out {name} --resume` goes on."
        ]
    if not evaluated:
        return [
            (
                f"The run was not evaluated: `channelhash evaluate {name}` writes its scores, "
                "plots and codes."
            )
        ]
    if not encoded:
        return [
            (
                "The codes are missing, so there are no examples and no code health: `channelhash "
                f"evaluate {name}`."
            )
        ]
    return []


def _subtitle(settings: _Sections, counts: Mapping[str, int]) -> str:
    def value(section: str, key: str) -> Any:
        return settings.get(section, {}).get(key, "?")

    rows = f" on {counts['train']:,} rows" if "train" in counts else ""
    return (
        f"{value('loss', 'name')} loss, {value('model', 'n_bits')} bits, model "
        f"{value('model', 'name')}, data {value('data', 'kind')}, {value('train', 'epochs')} "
        f"epochs{rows}, seed {value('train', 'seed')}"
    )


def _how_good(standings: Sequence[page.Standing]) -> list[page.Block]:
    if not standings:
        return []
    rows, chance = {}, {}
    for standing in standings:
        ends = 100 * standing.interval[0], 100 * standing.interval[1]
        tip = f"this run: {100 * standing.score:.2f}, 95 % interval {ends[0]:.2f} to {ends[1]:.2f}"
        task = arrow(standing.task)
        rows[task] = [page.Mark(100 * standing.score, tip, ends)]
        chance[task] = (100 * standing.chance[0], 100 * standing.chance[1])
    how = (
        "The line is the 95 % interval over queries; chance the 95 % interval of codes that know "
        "nothing"
    )
    chart = page.level_chart(f"{standings[0].measure}, %, beside chance", rows, chance)
    return [
        page.Charts([chart]),
        page.Text(f"{how}; 100 % is every relevant item before all others."),
    ]


def _training(log: Sequence[Mapping[str, Any]]) -> list[page.Block]:
    if not log:
        return []
    lines = {"Mean loss": {"loss": [(entry["epoch"] + 1, entry["loss"]) for entry in log]}}
    validated = [entry for entry in log if entry.get("validation")]
    seconds = sum(entry.get("seconds", 0) for entry in log)
    summary = f"{len(log)} epochs in {seconds:,.1f} s; last mean loss {log[-1]['loss']:.4f}."
    if validated:
        lines[f"Validation, {MEASURES[measure_of(validated)]}, %"] = {
            arrow(task): [
                (entry["epoch"] + 1, 100 * entry["validation"].get(task, float("nan")))
                for entry in validated
            ]
            for task in validated[-1]["validation"]
        }
        best = max(validated, key=lambda entry: selection_score(entry["validation"]))
        summary += f" Best on validation after epoch {best['epoch'] + 1}."
    charts = [page.line_chart(title, "epoch", series) for title, series in lines.items()]
    return [page.Text(summary), page.Charts([chart for chart in charts if chart])]


def _data(
    folder: Path, counts: Mapping[str, int], codes: tuple[CodeSet, CodeSet] | None
) -> list[page.Block]:
    blocks: list[page.Block] = []
    if counts:
        rows = [
            (_PARTITIONS.get(name, name.replace("_", " ")), f"{count:,}")
            for name, count in counts.items()
        ]
        blocks.append(page.Table(["partition", "rows"], rows, "Partitions"))
    if (
        codes
        and codes[0].labels is not None
        and codes[1].labels is not None
        and codes[0].label_names
    ):
        blocks.append(_labels(*codes))
    problems = folder / "problems.txt"
    lines = (
        split_lines(problems.read_text(encoding="utf-8", errors="replace"))
        if problems.exists()
        else []
    )
    if lines:
        blocks += [
            page.Text(
                f"Problems: {len(lines):,} rows were left out or repaired; the first of "
                "problems.txt:"
            ),
            page.Listing("\n".join(lines[:_PROBLEMS])),
        ]
    elif counts:
        blocks.append(page.Text("Problems: none."))
    return blocks


def _labels(query: CodeSet, database: CodeSet) -> page.Block:
    in_q, in_r = (
        codes.labels.sum(axis=0).tolist() for codes in (query, database) if codes.labels is not None
    )
    rows = [
        (name, f"{q:,}", f"{r:,}", page.print_score(float(q + r) / (len(query) + len(database))))
        for name, q, r in zip(query.label_names, in_q, in_r, strict=True)
    ]
    return page.Table(["label", "in Q", "in R", "of all, %"], rows, "Items with each label")


def _repeat(name: str) -> list[page.Block]:
    quoted = shlex.quote(name)
    again = shlex.quote(f"{name}-again")
    how = (
        "With the versions above, from the folder that holds this run's (or with the "
        "configuration above, which is complete, saved as a file):"
    )
    commands = f"channelhash train {quoted}/config.yaml --out {again}\nchannelhash evaluate {again}"
    return [page.Text(how), page.Listing(commands)]
