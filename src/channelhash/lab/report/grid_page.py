"""The report of a grid's folder: its runs, and the tables and plots in ``tables/`` and
``plots/``.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from markupsafe import Markup

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result, read_grid
from channelhash.lab.report import page
from channelhash.lab.report.run_page import (
    environment_blocks,
    example_blocks,
    read_test_codes,
    run_page,
)
from channelhash.metrics.plots import arrow
from channelhash.runs.folder import read_environments
from channelhash.utils.decode import split_lines
from channelhash.utils.files import write_text


def write_report(folder: Path) -> Path:
    """Write ``report.html`` into a run's or a grid's folder; return its path.

    The top of the page says what is missing or unreadable (an unfinished run, a file of another
    version).
    """
    if (folder / "grid.json").is_file():
        content = _grid_page(folder)
    elif (folder / "config.yaml").is_file():
        content = run_page(folder)
    else:
        raise InputError(
            f"{folder}: neither a run's folder (no config.yaml) nor a grid's (no grid.json); "
            "give one that `train` or `experiment` wrote"
        )
    path = folder / "report.html"
    write_text(path, content.render())
    return path


#: Status of a run -> what became of runs with it, where the page says so.
_FATES = {"failed": "failed; their errors are below", "missing": "have not ended yet"}


def _grid_page(folder: Path) -> page.Page:
    """Return the report of a grid."""
    title, results = read_grid(folder)
    counts = Counter(str(result.status) for result in results)
    notes = [
        f"{counts[status]} of {len(results)} runs {fate}."
        for status, fate in _FATES.items()
        if counts[status]
    ]
    common, differing = _compare_settings([result.settings for result in results])
    levels = _chance(results)
    trained = [result for result in results if _last(result)]
    low = sum(_at_chance(result, levels) for result in trained)
    return page.Page(
        title=title,
        subtitle=_subtitle(results),
        verdict=f"{low} of {len(trained)} trained runs are at chance." if levels else "",
        at_chance=low > 0,
        notes=notes,
        facts=[
            ("runs finished", f"{counts['finished']:,}"),
            ("failed", f"{counts['failed']:,}"),
            ("not run yet", f"{counts['missing']:,}"),
            ("time of all runs", f"{sum(result.seconds for result in results):,.0f} s"),
        ],
        sections=[
            page.Section("How good", _how_good(results, levels)),
            page.Section("Retrieval examples", _examples(results, notes)),
            page.Section("Plots", page.Plot.read_all(folder / "plots")),
            page.Section("Tables", _tables(folder / "tables")),
            page.Section("Runs", [_run_table(results, differing), *_error_tables(results)]),
            page.Section(
                "Configuration", [page.Text("What all runs have in common:"), page.Listing(common)]
            ),
            page.Section("Environment", environment_blocks(_environments(results))),
            page.Section("Repeat it", _repeat(folder)),
        ],
    )


def _error_tables(results: Sequence[Result]) -> list[page.Block]:
    """Return a table of the errors of runs that failed, if there are any."""
    failed = [(result.name, result.error) for result in results if result.status == "failed"]
    return [page.Table(["run", "error"], failed, "Runs that failed")] if failed else []


def _environments(results: Sequence[Result]) -> list[dict[str, Any]]:
    """Return the different environments in which the runs were made."""
    environments = {}
    for result in results:
        for environment in read_environments(result.folder / "environment.json"):
            environments[json.dumps(environment)] = environment
    return list(environments.values())


def _subtitle(results: Sequence[Result]) -> str:
    methods = len({result.method for result in results})
    bits = ", ".join(map(str, sorted({result.n_bits for result in results})))
    seeds = ", ".join(map(str, sorted({result.seed for result in results})))
    return f"A grid of {len(results)} runs: {methods} methods, {bits} bits, seeds {seeds}"


def _chance(results: Sequence[Result]) -> dict[str, tuple[float, float]]:
    """Return task -> interval of chance, by the first codes that are there: all runs answer the
    same queries.
    """
    codes = (read_test_codes(result.folder) for result in results if result.status == "finished")
    first = next((code_set for code_set in codes if code_set), None)
    return (
        {standing.task: standing.chance for standing in page.Standing.by_labels(*first)}
        if first
        else {}
    )


def _at_chance(result: Result, levels: Mapping[str, tuple[float, float]]) -> bool:
    figures = _last(result)
    return all(
        figures[task]["map_tie_aware"] <= levels[task][1] for task in levels if task in figures
    )


def _how_good(
    results: Sequence[Result], levels: Mapping[str, tuple[float, float]]
) -> list[page.Block]:
    charts = []
    for task in page.cross_tasks(
        dict.fromkeys(task for result in results for task in _last(result))
    ):
        rows: dict[str, list[page.Mark]] = {}
        for result in results:
            if task in _last(result):
                percent = 100 * result.score(task)
                rows.setdefault(result.method, []).append(
                    page.Mark(percent, f"{result.name}: {percent:.2f}")
                )
        band = {
            method: (100 * levels[task][0], 100 * levels[task][1])
            for method in rows
            if task in levels
        }
        charts.append(page.level_chart(f"Tie-aware mAP {arrow(task)}, %", rows, band))
    note = page.Text("A mark a run. Chance is the 95 % interval of codes that know nothing.")
    return [page.Charts(charts), note] if charts else []


def _examples(results: Sequence[Result], notes: list[str]) -> list[page.Block]:
    """Search with the run of the best mean mAP across modalities."""
    scored = [
        (float(np.mean([result.score(task) for task in page.cross_tasks(_last(result))])), result)
        for result in results
        if result.status == "finished" and _last(result)
    ]
    for _, best in sorted(scored, key=lambda pair: -pair[0]):
        if codes := read_test_codes(best.folder):
            return [
                page.Text(f"Answers of {best.name}, the best by mean mAP."),
                *example_blocks(*codes, notes),
            ]
    return []


def _compare_settings(runs: Sequence[Mapping[str, Mapping[str, Any]]]) -> tuple[str, list[str]]:
    r"""Return the keys with one value in all configurations as YAML, and the others as
    ``section.key``.

    >>> _compare_settings([{"loss": {"name": "dsch", "tau": 1}}, {"loss": {"name": "sch", "tau": 1}}])
    ('loss:\n  tau: 1\n', ['loss.name'])
    """
    names = dict.fromkeys(
        (section, key)
        for sections in runs
        for section, values in sections.items()
        for key in values
    )
    common: dict[str, dict[str, Any]] = {}
    differing = []
    for section, key in names:
        first, *others = (sections.get(section, {}).get(key, _ABSENT) for sections in runs)
        if all(value == first for value in others):
            common.setdefault(section, {})[key] = first
        else:
            differing.append(f"{section}.{key}")
    return yaml.safe_dump(common, sort_keys=False), differing


_ABSENT = object()


def _run_table(results: Sequence[Result], differing: Sequence[str]) -> page.Table:
    scored = set().union(*map(_last, results))
    tasks = [task for task in ("image->text", "text->image") if task in scored]
    header = ["run", "method", "status", "seconds", *[f"mAP {arrow(task)}, %" for task in tasks]]
    # a space, where a narrow column may break
    header += [name.replace(".", " ", 1) for name in differing]
    rows = []
    for result in results:
        settings = [_setting(result.settings, name) for name in differing]
        status = "not run yet" if result.status == "missing" else result.status
        seconds = f"{result.seconds:,.1f}" if result.status == "finished" else "–"
        levels = [
            page.print_score(_last(result).get(task, {}).get("map_tie_aware")) for task in tasks
        ]
        rows.append((result.name, result.method, status, seconds, *levels, *settings))
    return page.Table(
        header,
        rows,
        "Runs, tie-aware mAP after the last epoch, and the settings in which they differ",
    )


def _last(result: Result) -> Mapping[str, Mapping[str, Any]]:
    return result.epochs.get("last", {}).get("test", {})


def _setting(settings: Mapping[str, Mapping[str, Any]], name: str) -> str:
    section, _, key = name.partition(".")
    value = settings.get(section, {}).get(key, _ABSENT)
    if value is _ABSENT:
        return "–"
    return "null" if value is None else str(value)


def _tables(folder: Path) -> list[page.Block]:
    """Read the tables that `tables.write_tables` wrote as Markdown; whatever a cell holds is
    text.
    """
    blocks: list[page.Block] = []
    for path in sorted(folder.glob("*.md")):
        lines = split_lines(path.read_text(encoding="utf-8", errors="replace"))
        rows = [
            [_cell(cell) for cell in _BETWEEN_CELLS.split(line)[1:-1]]
            for line in lines
            if line.startswith("|")
        ]
        if len(rows) > 1 and all(len(row) == len(rows[0]) for row in rows):
            blocks += [page.Table(rows[0], rows[2:], _cell(lines[0])), page.Text(_cell(lines[-1]))]
    return blocks


_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")


def _cell(markdown: str) -> str:
    text = markdown.strip()
    plain = re.sub(r"\\(.)", r"\1", text.removeprefix("**").removesuffix("**"))
    return Markup("<b>{}</b>").format(plain) if text.startswith("**") else plain


def _repeat(folder: Path) -> list[page.Block]:
    command = json.loads((folder / "grid.json").read_text(encoding="utf-8")).get("command", "")
    how = "Runs that are finished are not repeated where the folder is still there."
    return [page.Text(how), page.Listing(str(command))]
