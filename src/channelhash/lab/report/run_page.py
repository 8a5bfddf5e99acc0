"""The report of one run's folder: whatever is there, and a note on whatever is not."""

import json
import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, combinations_with_replacement
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import yaml

from channelhash.codes import CodeSet
from channelhash.config import read_run_config
from channelhash.errors import InputError
from channelhash.lab.experiments.results import Sections
from channelhash.lab.report import page
from channelhash.lab.report.code_health import Bounds, bit_health, channel_health
from channelhash.lab.report.examples import example_blocks, read_test_codes
from channelhash.lab.report.scores import read_evaluations, score_table
from channelhash.losses import ChannelLoss, resolve_loss
from channelhash.metrics.plots import arrow
from channelhash.runs.create import create_loss
from channelhash.runs.folder import read_environments
from channelhash.training.validation import (
    MEASURES,
    LogEntry,
    measure_of,
    read_log,
    selection_score,
)
from channelhash.utils.decode import read_yaml_sections, reading, split_lines

#: Kind of pair, as `code_health` names it -> in words.
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
    points = {}
    for name, health in of_bits.items():
        points[name] = list(enumerate(100 * np.sort(health["ones"]), start=1))
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


#: What is said of the bits -> how it is read from `bit_health`.
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


def _bit_table(of_bits: Sections) -> page.Table:
    rows = []
    for name, read in _BITS.items():
        rows.append((name, *map(page.print_score, map(read, of_bits.values()))))
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


_T = TypeVar("_T")

#: Lines of ``problems.txt`` that are shown.
_PROBLEMS = 20
#: Key of a partition in ``splits.json`` -> in words.
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
    log = _or_note(notes, folder, lambda: read_log(folder / "log.jsonl"), list[Any]())
    environments = _or_note(
        notes, folder, lambda: read_environments(folder / "environment.json"), list[Any]()
    )
    evaluations = _or_note(notes, folder, lambda: read_evaluations(folder), list[Any]())
    codes = _or_note(notes, folder, lambda: read_test_codes(folder), None)
    bounds = _or_note(notes, folder, lambda: _bounds(folder, codes), None)
    counts = _or_note(notes, folder, lambda: _partitions(folder), dict[str, int]())
    standings = page.Standing.by_labels(*codes) if codes else []
    if not standings and evaluations:
        standings = page.Standing.by_recall(evaluations[0][1])
    notes += _unfinished(folder, settings, log, bool(evaluations), codes is not None)
    if not (folder / "environment.json").exists():
        notes.append("No environment was recorded.")
    name = folder.resolve().name
    configuration = page.Listing(yaml.safe_dump(settings, sort_keys=False))
    blocks: dict[str, Sequence[page.Block]] = {
        "How good": _how_good(standings),
        "Retrieval examples": example_blocks(*codes, notes) if codes else [],
        "Training": _training(log),
        "Plots": page.Plot.read_all(folder / "plots"),
        "Scores": [score_table(title, tasks) for title, tasks in evaluations],
        "Data": _data(folder, counts, codes),
        "Code health": _health_blocks(*codes, bounds) if codes else [],
        "Configuration": [configuration],
        "Environment": environment_blocks(environments),
        "Repeat it": _repeat(name),
    }
    facts = []
    for each in standings:
        facts.append((f"{each.measure} {arrow(each.task)}", f"{100 * each.score:.2f} %"))
    return page.Page(
        title=name,
        subtitle=_subtitle(settings, counts),
        verdict=page.verdict(standings),
        at_chance=any(standing.at_chance for standing in standings),
        notes=notes,
        facts=facts,
        sections=[page.Section(*section) for section in blocks.items()],
    )


def environment_blocks(environments: Sequence[Mapping[str, Any]]) -> list[page.Block]:
    """Tabulate environments: one column a different environment, one row a recorded fact.

    >>> environment_blocks([{"python": "3.12"}])[0].rows
    [('python', '3.12')]
    """
    if not environments:
        return []
    columns = [_flat(environment) for environment in environments]
    header = ["", "recorded"]
    if len(columns) > 1:
        header = ["", *[f"part {number}" for number in range(1, len(columns) + 1)]]
    rows = []
    for key in dict.fromkeys(chain.from_iterable(columns)):
        rows.append((key, *[column.get(key, "–") for column in columns]))
    return [page.Table(header, rows)]


def _or_note(notes: list[str], folder: Path, read: Callable[[], _T], default: _T) -> _T:
    """Call ``read``; if the file is not of this version, return the default and add a note that
    says so.
    """
    try:
        return read()
    except InputError as error:
        # pages are passed on; the folder does not matter
        notes.append(str(error).replace(f"{folder}/", ""))
        return default


def _flat(environment: Mapping[str, Any]) -> dict[str, str]:
    lines: dict[str, str] = {}
    for key, value in environment.items():
        if isinstance(value, dict):
            lines |= {str(name): str(version) for name, version in value.items()}
        elif value is not None:
            lines[key.replace("_", " ")] = str(value)
    return lines


def _bounds(folder: Path, codes: tuple[CodeSet, CodeSet] | None) -> Bounds | None:
    """Return the channels of the run's loss, None without channels; raise `InputError` for another
    version's config.
    """
    config = read_run_config(folder)
    labels = codes[1].labels if codes else None
    if labels is None or not issubclass(resolve_loss(config.loss_name), ChannelLoss):
        return None
    # A channel depends on code length and settings, not on the number of labels. Where it depends
    # on the labels of a batch, those of the retrieval set stand for them.
    channels = create_loss(config, n_labels=0).channels
    return None if channels is None else channels.bounds_for(torch.from_numpy(labels))


def _partitions(folder: Path) -> dict[str, int]:
    path = folder / "splits.json"
    if not path.exists():
        return {}
    with reading(path, "not the splits of this version"):
        rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
        return {str(name): len(part) for name, part in rows.items()}


def _unfinished(
    folder: Path, settings: Sections, log: Sequence[Any], evaluated: bool, encoded: bool
) -> list[str]:
    """Say what the run lacks, and the command that brings it."""
    name = shlex.quote(folder.resolve().name)
    if not (folder / "model" / "config.json").exists():
        epochs = settings.get("train", {}).get("epochs", "?")
        note = (
            f"Training has not ended: {len(log)} of {epochs} epochs are done. "
            f"`channelhash train {name}/config.yaml --out {name} --resume` goes on."
        )
    elif not evaluated:
        note = (
            f"The run was not evaluated: `channelhash evaluate {name}` writes its scores, plots "
            "and codes."
        )
    elif not encoded:
        note = (
            "The codes are missing, so there are no examples and no code health: `channelhash "
            f"evaluate {name}`."
        )
    else:
        return []
    return [note]


def _subtitle(settings: Sections, counts: Mapping[str, int]) -> str:
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
    rows = {}
    chance = {}
    for standing in standings:
        score = 100 * standing.score
        ends = page.percent(standing.interval)
        tip = f"this run: {score:.2f}, 95 % interval {ends[0]:.2f} to {ends[1]:.2f}"
        task = arrow(standing.task)
        rows[task] = [page.Mark(score, tip, ends)]
        chance[task] = page.percent(standing.chance)
    chart = page.level_chart(f"{standings[0].measure}, %, beside chance", rows, chance)
    how = page.Text(
        "The line is the 95 % interval over queries; chance the 95 % interval of codes that know "
        "nothing; 100 % is every relevant item before all others."
    )
    return [page.Charts([chart]), how]


def _training(log: Sequence[LogEntry]) -> list[page.Block]:
    if not log:
        return []
    seconds = sum(entry.get("seconds", 0) for entry in log)
    summary = f"{len(log)} epochs in {seconds:,.1f} s; last mean loss {log[-1]['loss']:.4f}."
    losses = [(entry["epoch"] + 1, entry["loss"]) for entry in log]
    charts = [page.line_chart("Mean loss", "epoch", {"loss": losses})]
    validated = [entry for entry in log if entry.get("validation")]
    if validated:
        title = f"Validation, {MEASURES[measure_of(validated)]}, %"
        charts.append(page.line_chart(title, "epoch", _validation_lines(validated)))
        best = max(validated, key=lambda entry: selection_score(entry["validation"]))
        summary += f" Best on validation after epoch {best['epoch'] + 1}."
    return [page.Text(summary), page.Charts([chart for chart in charts if chart])]


def _validation_lines(log: Sequence[LogEntry]) -> dict[str, list[tuple[float, float]]]:
    """Return task -> (epoch, score in percent) of the entries with scores on validation."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for entry in log:
        for task in log[-1]["validation"]:
            score = 100 * entry["validation"].get(task, math.nan)
            lines.setdefault(arrow(task), []).append((entry["epoch"] + 1, score))
    return lines


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
    if codes:
        blocks += _label_tables(*codes)
    path = folder / "problems.txt"
    problems = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    lines = split_lines(problems)
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


def _label_tables(query: CodeSet, database: CodeSet) -> list[page.Block]:
    """Tabulate how many items have each label, if labels have names."""
    if query.labels is None or database.labels is None or not query.label_names:
        return []
    counts = (query.labels.sum(axis=0).tolist(), database.labels.sum(axis=0).tolist())
    rows = []
    for name, q, r in zip(query.label_names, *counts, strict=True):
        share = float(q + r) / (len(query) + len(database))
        rows.append((name, f"{q:,}", f"{r:,}", page.print_score(share)))
    return [page.Table(["label", "in Q", "in R", "of all, %"], rows, "Items with each label")]


def _repeat(name: str) -> list[page.Block]:
    quoted = shlex.quote(name)
    again = shlex.quote(f"{name}-again")
    how = (
        "With the versions above, from the folder that holds this run's (or with the "
        "configuration above, which is complete, saved as a file):"
    )
    commands = f"channelhash train {quoted}/config.yaml --out {again}\nchannelhash evaluate {again}"
    return [page.Text(how), page.Listing(commands)]
