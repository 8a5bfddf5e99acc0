"""The tables of the pages of results say what the raw results beside them say."""

import re
from statistics import mean, stdev

from channelhash.lab.experiments.score_files import read_runs
from channelhash.lab.experiments.stats.significance import seed_test
from pages import DOCS

#: Of the columns of the page: score and retrieval set.
_COLUMNS = (("map_tie_aware", "test"), ("map_tie_aware", "leak_free"), ("roc_auc_micro", "test"))


def test_the_tables_of_real_tags_are_made_of_their_runs():
    every = read_runs(DOCS / "results" / "tables" / "tags-runs.csv")[""]
    runs, scores = [run for run in every if run.n_bits == 32], {}
    for method in {run.method for run in runs}:
        of_method = sorted((run for run in runs if run.method == method), key=lambda run: run.seed)
        assert [run.seed for run in of_method] == [0, 1, 2, 3, 4]
        scores[method] = [[100 * run.score("text->text", *column) for run in of_method] for column in _COLUMNS]
    page = (DOCS / "results" / "tags.md").read_text(encoding="utf-8")
    lines = re.findall(r"^\| (.+?) \| ([\d+−].*?) \|(?:  \|)?$", page, re.M)
    rows = {method: cells.split(" | ") for method, cells in lines}
    for method, values in scores.items():
        assert rows.pop(method)[:3] == [f"{mean(each):.2f} ± {stdev(each):.2f}" for each in values]
    lengths = sorted({run.n_bits for run in every})
    for method in [name.removesuffix(", here") for name in rows if name.endswith(", here")]:
        found = [
            [100 * run.score("text->text") for run in every if (run.method, run.n_bits) == (method, n_bits)]
            for n_bits in lengths
        ]
        assert rows.pop(f"{method}, here") == [f"{mean(each):.2f} ± {stdev(each):.2f}" for each in found]
        rows.pop(f"{method}, printed", None)
    assert len(rows) == 3
    for name, cells in rows.items():
        first, second = (scores[method][:2] for method in name.split(" − "))
        for a, b, cell in zip(first, second, cells, strict=True):
            test = seed_test([x - y for x, y in zip(a, b, strict=True)])
            expected = f"{test.difference:+.2f} \\[{test.lower:+.2f}, {test.upper:+.2f}\\]"
            assert cell == expected.replace("-", "−")
