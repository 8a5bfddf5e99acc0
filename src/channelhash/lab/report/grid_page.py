"""The report of a grid's folder: its runs, and the tables and plots in ``tables/`` and
``plots/``.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from markupsafe import Markup

from channelhash.errors import InputError
from channelhash.lab.experiments.results import Result, Sections, cross_tasks, finished, read_grid
from channelhash.lab.report import page
from channelhash.lab.report.examples import example_blocks, read_test_codes
from channelhash.lab.report.run_page import environment_blocks, run_page
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


#: Status of a run -> its name on the page, if it is another.
_STATUS = {"missing": "not run yet"}
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
    trained = [result for result in results if result.tasks()]
    low = sum(_at_chance(result, levels) for result in trained)
    blocks: dict[str, Sequence[page.Block]] = {
        "How good": _how_good(results, levels),
        "Retrieval examples": _examples(results, notes),
        "Plots": page.Plot.read_all(folder / "plots"),
        "Tables": _read_tables(folder / "tables"),
        "Runs": [_run_table(results, differing), *_error_tables(results)],
        "Configuration": [page.Text("What all runs have in common:"), page.Listing(common)],
        "Environment": environment_blocks(_environments(results)),
        "Repeat it": _repeat(folder),
    }
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
        sections=[page.Section(*section) for section in blocks.items()],
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
    """Return task -> interval of chance, by the codes of the first run that has them: all runs
    answer the same queries.
    """
    for result in finished(results):
        codes = read_test_codes(result.folder)
        if codes:
            return {standing.task: standing.chance for standing in page.Standing.by_labels(*codes)}
    return {}


def _at_chance(result: Result, levels: Mapping[str, tuple[float, float]]) -> bool:
    tasks = result.tasks()
    return all(result.score(task) <= levels[task][1] for task in levels if task in tasks)


def _how_good(
    results: Sequence[Result], levels: Mapping[str, tuple[float, float]]
) -> list[page.Block]:
    """Draw the score of each run, a row a method and a chart a task."""
    charts = []
    for task in cross_tasks(_tasks(results)):
        rows: dict[str, list[page.Mark]] = {}
        for result in results:
            if task in result.tasks():
                score = 100 * result.score(task)
                mark = page.Mark(score, f"{result.name}: {score:.2f}")
                rows.setdefault(result.method, []).append(mark)
        chance = dict.fromkeys(rows, page.percent(levels[task])) if task in levels else {}
        charts.append(page.level_chart(f"Tie-aware mAP {arrow(task)}, %", rows, chance))
    note = page.Text("A mark a run. Chance is the 95 % interval of codes that know nothing.")
    return [page.Charts(charts), note] if charts else []


def _tasks(results: Sequence[Result]) -> list[str]:
    """Return the tasks that some run was evaluated on."""
    return list(dict.fromkeys(chain.from_iterable(result.tasks() for result in results)))


def _examples(results: Sequence[Result], notes: list[str]) -> list[page.Block]:
    """Search with the run of the best mean mAP across modalities."""
    scored = [result for result in finished(results) if result.tasks()]
    for best in sorted(scored, key=_mean_score, reverse=True):
        codes = read_test_codes(best.folder)
        if codes:
            about = page.Text(f"Answers of {best.name}, the best by mean mAP.")
            return [about, *example_blocks(*codes, notes)]
    return []


def _mean_score(result: Result) -> float:
    return fmean(result.score(task) for task in cross_tasks(result.tasks()))


def _compare_settings(runs: Sequence[Sections]) -> tuple[str, list[str]]:
    r"""Return the keys with one value in all configurations as YAML, and the others as
    ``section.key``.

    >>> dsch = {"loss": {"name": "dsch", "tau": 1}}
    >>> _compare_settings([dsch, {"loss": {"name": "sch", "tau": 1}}])
    ('loss:\n  tau: 1\n', ['loss.name'])
    """
    names: dict[tuple[str, str], None] = {}
    for sections in runs:
        for section, values in sections.items():
            names |= dict.fromkeys((section, key) for key in values)
    common: dict[str, dict[str, Any]] = {}
    differing = []
    for section, key in names:
        first, *others = (sections.get(section, {}).get(key, _ABSENT) for sections in runs)
        if all(value == first for value in others):
            common.setdefault(section, {})[key] = first
        else:
            differing.append(f"{section}.{key}")
    return yaml.safe_dump(common, sort_keys=False), differing


#: The value of a key that a configuration lacks.
_ABSENT = object()


def _run_table(results: Sequence[Result], differing: Sequence[str]) -> page.Table:
    scored = _tasks(results)
    tasks = [task for task in ("image->text", "text->image") if task in scored]
    header = ["run", "method", "status", "seconds", *[f"mAP {arrow(task)}, %" for task in tasks]]
    # a space, where a narrow column may break
    header += [name.replace(".", " ", 1) for name in differing]
    return page.Table(
        header,
        [_run_row(result, tasks, differing) for result in results],
        "Runs, tie-aware mAP after the last epoch, and the settings in which they differ",
    )


def _run_row(result: Result, tasks: Sequence[str], differing: Sequence[str]) -> list[str]:
    seconds = f"{result.seconds:,.1f}" if result.status == "finished" else "–"
    row = [result.name, result.method, _STATUS.get(result.status, result.status), seconds]
    for task in tasks:
        row.append(page.print_score(result.score(task) if task in result.tasks() else None))
    return row + [_setting(result.settings, name) for name in differing]


def _setting(settings: Sections, name: str) -> str:
    section, _, key = name.partition(".")
    value = settings.get(section, {}).get(key, _ABSENT)
    if value is _ABSENT:
        return "–"
    return "null" if value is None else str(value)


def _read_tables(folder: Path) -> list[page.Block]:
    """Read the tables that `tables.write_tables` wrote as Markdown; whatever a cell holds is
    text.
    """
    blocks: list[page.Block] = []
    for path in sorted(folder.glob("*.md")):
        lines = split_lines(path.read_text(encoding="utf-8", errors="replace"))
        rows = []
        for line in lines:
            if line.startswith("|"):
                rows.append([_cell(cell) for cell in _BETWEEN_CELLS.split(line)[1:-1]])
        if len(rows) > 1 and all(len(row) == len(rows[0]) for row in rows):
            blocks += [page.Table(rows[0], rows[2:], _cell(lines[0])), page.Text(_cell(lines[-1]))]
    return blocks


#: A border of a cell; within one, a bar has a backslash before it.
_BETWEEN_CELLS = re.compile(r"(?<!\\)\|")


def _cell(markdown: str) -> str:
    text = markdown.strip()
    plain = re.sub(r"\\(.)", r"\1", text.removeprefix("**").removesuffix("**"))
    return Markup("<b>{}</b>").format(plain) if text.startswith("**") else plain


def _repeat(folder: Path) -> list[page.Block]:
    command = json.loads((folder / "grid.json").read_text(encoding="utf-8")).get("command", "")
    how = "Runs that are finished are not repeated where the folder is still there."
    return [page.Text(how), page.Listing(str(command))]
