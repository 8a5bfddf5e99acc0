"""The tables of `quality`, made of its rows alone."""

import csv
import gzip
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from channelhash.lab.experiments.comparisons import holm
from channelhash.metrics.resampling import paired_test
from channelhash.utils.files import atomic_path

RESULTS = Path(__file__).parents[1] / "docs" / "reference" / "results"
ROWS = RESULTS / "tables" / "quality-per-byte.csv.gz"
TESTS = RESULTS / "tables" / "quality-per-byte-tests.csv"
PAGE = RESULTS / "quality-per-byte.md"
PLOT = RESULTS.parents[1] / "images" / "quality-per-byte.svg"
COLUMNS = (
    "collection",
    "encoder",
    "vectors",
    "numbers",
    "method",
    "setting",
    "bytes",
    "bytes_once",
    "questions_per_second",
    "build_seconds",
    "found",
    "ndcg",
)
#: The columns of the tables: the most bytes that a vector may take, those of the settings of rivals.
BUDGETS = (16, 32, 76, 148, 276, 432)
#: The methods in the order of the tables.
METHODS = (
    "FAISS PQ",
    "FAISS OPQ",
    "FAISS SQ",
    "FAISS RaBitQ",
    "FAISS ITQ",
    "rabitqlib",
    "turbovec",
    "remex",
    "usearch b1",
    "usearch i8",
    "ours, bits",
    "ours, learned bits",
    "ours, bits, then numbers",
    "ours, numbers alone",
)
FLOATS = "floats"
CENTRED = "floats less their mean"
SCORES = ("recall", "ndcg")
#: What a rival is compared with: at most so many bytes -> our method.
OURS = "ours, bits, then numbers"
OURS_ALONE = "ours, bits"
_ALONE = 16
#: The neighbours that count.
_K = 10
#: Assignments of signs: so many that Holm's correction of 900 tests can still reach the level.
RESAMPLES = 20_000
#: The level of a test, after correction.
LEVEL = 0.05
#: The encoder, and the budget, of the table of costs.
_COSTS_OF = "minilm"
_COSTS_WITHIN = 148
_IMAGES = "coco17"


class Row(NamedTuple):
    """A setting of a method on a data set.

    Attributes:
        collection: name of it.
        encoder: name of it.
        vectors: number of them.
        method: name of it.
        setting: number of bits or subquantisers.
        n_bytes: bytes of a vector.
        once: bytes of the collection.
        per_second: questions a second.
        build: seconds.
        recall: ``(nq,)``, R@10 in percent.
        ndcg: ``(nq,)``, nDCG@10 in percent; empty without judgements.
    """

    collection: str
    encoder: str
    vectors: int
    method: str
    setting: str
    n_bytes: int
    once: int
    per_second: float
    build: float
    recall: NDArray[np.float64]
    ndcg: NDArray[np.float64]

    @property
    def data_set(self) -> str:
        """The name of its data."""
        return f"{self.collection}-{self.encoder}"


class Test(NamedTuple):
    """A setting of a rival, compared with ours of at most as many bytes, question by question.

    Attributes:
        data_set: name of it.
        method: the rival.
        n_bytes: bytes of its vector.
        ours: bytes of our vector.
        score: "recall" or "ndcg".
        difference: the rival's mean less ours, in points.
        p_value: of the paired test, not corrected.
    """

    data_set: str
    method: str
    n_bytes: int
    ours: int
    score: str
    difference: float
    p_value: float


def read_rows(file: Path | None = None) -> list[Row]:
    """Read the rows of a file, by default of the published one."""
    path = ROWS if file is None else file
    raw = path.read_bytes()
    text = gzip.decompress(raw).decode() if path.suffix == ".gz" else raw.decode()
    return [_row(cells) for cells in csv.DictReader(io.StringIO(text))]


def _row(cells: Mapping[str, str]) -> Row:
    return Row(
        cells["collection"],
        cells["encoder"],
        int(cells["vectors"]),
        cells["method"],
        cells["setting"],
        int(cells["bytes"]),
        int(cells["bytes_once"]),
        float(cells["questions_per_second"]),
        float(cells["build_seconds"]),
        100 / _K * np.array(cells["found"].split(), np.float64),
        np.array(cells["ndcg"].split(), np.float64) / 100,
    )


def read_tests() -> list[Test]:
    """Read the published tests."""
    with open(TESTS, newline="", encoding="utf-8") as file:
        return [
            Test(
                cells["data_set"],
                cells["method"],
                int(cells["bytes"]),
                int(cells["bytes_ours"]),
                cells["score"],
                float(cells["difference"]),
                float(cells["p_value"]),
            )
            for cells in csv.DictReader(file)
        ]


def publish(file: Path) -> None:
    """Write the rows of a file, their tests, the plot and the tables of the page to their places."""
    with open(file, newline="", encoding="utf-8") as stream:
        cells = sorted(
            csv.DictReader(stream),
            key=lambda row: (row["collection"], row["encoder"], row["method"], int(row["bytes"])),
        )
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    with atomic_path(ROWS) as path:
        path.write_bytes(gzip.compress(text.getvalue().encode(), mtime=0))
    rows = [_row(row) for row in cells]
    tests = list(compare(rows))
    _write_tests(tests)
    draw(rows)
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables(rows, tests).items():
        shown = rf"(?m)^<!-- quality: {name} -->\n\n(\|.*\n)*"
        page = re.sub(shown, with_name(name, table), page)  # a table has no backslash
    with atomic_path(PAGE) as path:
        path.write_text(page, encoding="utf-8")


def _write_tests(tests: Sequence[Test]) -> None:
    with atomic_path(TESTS) as path, open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            ("data_set", "method", "bytes", "bytes_ours", "score", "difference", "p_value")
        )
        for test in tests:
            writer.writerow((*test[:5], f"{test.difference:.4f}", f"{test.p_value:.3g}"))


def methods_of(rows: Iterable[Row]) -> list[str]:
    """Return the names of the methods that there are, in the order of the tables."""
    there = {row.method for row in rows}
    return [name for name in METHODS if name in there]


def within(rows: Iterable[Row], budget: float) -> Row | None:
    """Return the largest of a method's rows of a data set that a budget allows."""
    allowed = [row for row in rows if row.n_bytes <= budget]
    return max(allowed, key=lambda row: row.n_bytes, default=None)


def by_set(rows: Sequence[Row]) -> dict[str, dict[str, list[Row]]]:
    """Return data set -> method -> rows."""
    found: dict[str, dict[str, list[Row]]] = {}
    for row in rows:
        found.setdefault(row.data_set, {}).setdefault(row.method, []).append(row)
    return found


def compare(rows: Sequence[Row]) -> Iterator[Test]:
    """Test each setting of each rival that the tables show, on each data set that has ours."""
    for methods in by_set(rows).values():
        rivals = set(methods).intersection(METHODS) - {OURS, OURS_ALONE}
        if OURS in methods:
            for name in sorted(rivals, key=METHODS.index):
                yield from _tests(methods, methods[name])


def _tests(methods: Mapping[str, list[Row]], settings: Sequence[Row]) -> Iterator[Test]:
    """Test the settings of a rival on one data set."""
    largest = [within(settings, budget) for budget in BUDGETS]
    shown = {row.n_bytes: row for row in largest if row is not None}
    for row in shown.values():
        ours = _ours(methods, row.n_bytes)
        for score in SCORES:
            first = getattr(row, score)
            if len(first):
                found = paired_test(first, getattr(ours, score), RESAMPLES)
                yield Test(
                    row.data_set,
                    row.method,
                    row.n_bytes,
                    ours.n_bytes,
                    score,
                    found.difference,
                    found.p_value,
                )


def _ours(methods: Mapping[str, list[Row]], budget: int) -> Row:
    """Return our setting that a rival of so many bytes is compared with."""
    found = within(methods[OURS_ALONE if budget <= _ALONE else OURS], budget)
    assert found is not None
    return found


def print_tables(rows: Sequence[Row], tests: Sequence[Test]) -> None:
    """Print all tables of the page."""
    for name, table in tables(rows, tests).items():
        print(with_name(name, table))


def with_name(name: str, table: str) -> str:
    """Return a table as it stands in the page.

    >>> with_name("costs", "| a |\\n")
    '<!-- quality: costs -->\\n\\n| a |\\n'
    """
    return f"<!-- quality: {name} -->\n\n{table}"


def tables(rows: Sequence[Row], tests: Sequence[Test]) -> dict[str, str]:
    """Return the tables of the page by name."""
    return {
        "texts": _texts(rows),
        "images": _images(rows),
        "counts": _counts(rows, tests),
        "costs": _costs(rows),
    }


def _table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = f"|---|{'---:|' * (len(header) - 1)}\n"
    first, *others = [f"| {' | '.join(line)} |\n" for line in [header, *lines]]
    return "".join([first, rule, *others])


def _cells(cells: Sequence[str]) -> list[str]:
    """Leave out what repeats the cell before: there is no larger setting."""
    before = ["", *cells[:-1]]
    return [cell if cell != last else "" for cell, last in zip(cells, before, strict=True)]


def _header() -> list[str]:
    return ["at most … bytes", *map(str, BUDGETS)]


def _texts(rows: Sequence[Row]) -> str:
    """Return means over the data sets of texts: R@10, and nDCG@10 as a share of the floats'."""
    sets = [found for name, found in by_set(rows).items() if _IMAGES not in name]
    floats = [found[FLOATS][0] for found in sets]
    lines = []
    for method in methods_of(rows):
        settings = [found.get(method, []) for found in sets]
        cells = [_both([within(each, budget) for each in settings], floats) for budget in BUDGETS]
        lines.append([method, *_cells(cells)])
    centred = [found[CENTRED][0] for found in sets]
    lines.append([CENTRED, *[""] * (len(BUDGETS) - 1), _both(centred, floats)])
    return _table(_header(), lines)


def _both(chosen: Sequence[Row | None], floats: Sequence[Row]) -> str:
    """Return mean R@10 and mean share of nDCG@10, where every data set has a setting."""
    there = [row for row in chosen if row is not None]
    if len(there) < len(floats):
        return ""
    recall, share = _means(there, floats)
    return f"{recall:.1f}, {share:.1f}"


def _images(rows: Sequence[Row]) -> str:
    """Return R@10 of the two encoders of images."""
    sets = [found for name, found in by_set(rows).items() if _IMAGES in name]
    lines = []
    for method in methods_of(rows):
        settings = [found.get(method, []) for found in sets]
        cells = [_recalls([within(each, budget) for each in settings]) for budget in BUDGETS]
        if any(cells):
            lines.append([method, *_cells(cells)])
    return _table(_header(), lines)


def _recalls(chosen: Sequence[Row | None]) -> str:
    """Return R@10 of each data set, nothing where none has a setting."""
    if not any(chosen):
        return ""
    return ", ".join("–" if row is None else f"{row.recall.mean():.1f}" for row in chosen)


def _counts(rows: Sequence[Row], tests: Sequence[Test]) -> str:
    """Return for each rival on how many data sets it is significantly better, and worse, than ours
    of at most as many bytes: R@10, then nDCG@10.
    """
    signs = _significant(tests)
    lines = []
    for method in methods_of(rows):
        cells = [_count(signs, _shown(rows, method, budget)) for budget in BUDGETS]
        if any(cells):
            lines.append([method, *_cells(cells)])
    return _table(_header(), lines)


def _significant(tests: Sequence[Test]) -> dict[tuple[str, str, int, str], int]:
    """Return the sign of each difference that Holm's correction leaves significant, else 0."""
    found = {}
    for score in SCORES:
        chosen = [test for test in tests if test.score == score]
        corrected = holm([test.p_value for test in chosen])
        for test, p_value in zip(chosen, corrected, strict=True):
            sign = int(np.sign(test.difference)) if p_value <= LEVEL else 0
            found[test.data_set, test.method, test.n_bytes, score] = sign
    return found


def _count(signs: Mapping[tuple[str, str, int, str], int], rows: Sequence[Row]) -> str:
    """Return how many of the rows are better and worse, in each score."""
    cells = []
    for score in SCORES:
        keys = [(row.data_set, row.method, row.n_bytes, score) for row in rows]
        found = [signs[key] for key in keys if key in signs]
        if found:
            cells.append(f"+{found.count(1)}−{found.count(-1)}")
    return ", ".join(cells)


def _shown(rows: Sequence[Row], method: str, budget: int) -> list[Row]:
    """Return the row of each data set that a column shows."""
    chosen = [within(found.get(method, []), budget) for found in by_set(rows).values()]
    return [row for row in chosen if row is not None]


def _costs(rows: Sequence[Row]) -> str:
    """Return what each method costs on the largest collection, by one encoder at one budget."""
    lines = []
    largest = max((row for row in rows if row.encoder == _COSTS_OF), key=lambda row: row.vectors)
    found = by_set(rows)[largest.data_set]
    for method in [*methods_of(rows), FLOATS]:
        budget = np.inf if method == FLOATS else _COSTS_WITHIN
        row = within(found.get(method, []), budget)
        if row is not None:
            lines.append(
                [
                    method,
                    str(row.n_bytes),
                    f"{row.once / 1000:,.0f}",
                    f"{row.per_second:,.0f}",
                    f"{row.build:,.0f}" if row.build >= 10 else f"{row.build:.2g}",
                ]
            )
    header = ["", "bytes", "kB once", "questions a second", "seconds to build"]
    return _table(header, lines)


def draw(rows: Sequence[Row]) -> None:
    """Draw both scores of texts over bytes, a line a method."""
    from matplotlib.figure import Figure

    from channelhash.metrics.plots import legend_below, line, write_figure

    sets = [found for name, found in by_set(rows).items() if _IMAGES not in name]
    floats = [found[FLOATS][0] for found in sets]
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    panels = figure.subplots(1, 2)
    for number, method in enumerate(methods_of(rows)):
        points = np.array(_points([found.get(method, []) for found in sets], floats))
        for panel, scores in zip(panels, points.T[1:], strict=False):
            line(panel, number, points[:, 0], scores, method)
            if method.startswith("ours"):
                panel.lines[-1].set(color="black", linewidth=2.5)
    for panel, title in zip(panels, ("R@10, %", "nDCG@10, % of floats"), strict=True):
        panel.set_xscale("log", base=2)
        panel.set_xticks(BUDGETS, map(str, BUDGETS))
        panel.set(xlabel="bytes a vector", title=title)
        panel.grid(alpha=0.3)
    legend_below(figure, panels[0])
    write_figure(figure, PLOT.parent, PLOT.stem, [PLOT.suffix[1:]])


def _points(
    settings: Sequence[Sequence[Row]], floats: Sequence[Row]
) -> list[tuple[float, float, float]]:
    """Return mean bytes, R@10 and share of nDCG@10 at each budget that all data sets reach."""
    points = []
    for budget in BUDGETS:
        chosen = [within(rows, budget) for rows in settings]
        there = [row for row in chosen if row is not None]
        if len(there) == len(floats):
            n_bytes = mean(row.n_bytes for row in there)
            points.append((n_bytes, *_means(there, floats)))
    return list(dict.fromkeys(points))


def _means(rows: Sequence[Row], floats: Sequence[Row]) -> tuple[float, float]:
    """Return mean R@10 and mean share of nDCG@10."""
    shares = [
        float(100 * row.ndcg.mean() / whole.ndcg.mean())
        for row, whole in zip(rows, floats, strict=True)
    ]
    return mean(float(row.recall.mean()) for row in rows), mean(shares)
