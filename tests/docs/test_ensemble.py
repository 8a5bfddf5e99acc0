"""examples/ensemble.py distils as it says, and the page's table is made of its runs."""

import sys
from statistics import mean, stdev

import numpy as np
import pytest
import torch

from channelhash.losses import make_loss
from pages import DOCS, ROOT
from small_runs import write_features

sys.path.insert(0, str(ROOT / "examples"))
import ensemble


def test_distances_follow_the_teacher_within_a_group():
    random = torch.Generator().manual_seed(0)
    image, text, shown = (torch.randn(shape, generator=random) for shape in ((4, 6), (4, 6), (2, 9, 12)))
    labels, rows, group = torch.eye(4, dtype=torch.bool), torch.tensor([7, 0, 2, 5]), torch.arange(9) % 2
    from_labels = make_loss("dsch", 6, 4)
    loss = ensemble.Distilled(from_labels, ensemble.Teacher(shown, group), weight=2.0)
    codes = [(m, i, each[i]) for m, each in enumerate((image, text)) for i in range(4)]
    cosine = torch.nn.CosineSimilarity(dim=0)
    errors = [
        abs(cosine(a, b) - cosine(shown[m, rows[i]], shown[n, rows[j]])).item()
        for m, i, a in codes
        for n, j, b in codes
        if group[rows[i]] == group[rows[j]]
    ]
    outputs = {"image": image, "text": text}
    expected = from_labels(outputs, labels).item() + 2.0 * 3 * mean(errors)
    assert loss(outputs, labels, rows=rows).item() == pytest.approx(expected, rel=1e-5)


def test_a_cross_fitted_code_is_of_heads_that_did_not_see_the_row(tmp_path, monkeypatch):
    records = ensemble.load_features(write_features(tmp_path / "f.npz", 60))
    cell = ensemble.Cell(records, ensemble.draw_splits(records, 10, 30, seed=0), 0, 8)
    seen = {}

    def head(self, seed, rows):
        """Say in each bit whether a row was trained on; all heads of a fold say the same."""
        seen[seed] = rows
        return np.where(np.isin(np.arange(60), rows), 1.0, -1.0)[None, :, None].repeat(2, 0).repeat(8, 2)

    monkeypatch.setattr(ensemble.Cell, "head", head)
    teacher = cell.cross_fitted()["fold"]
    assert teacher.codes.shape == (2, 30, 24)
    assert (teacher.codes == -1).all()
    for number, rows in enumerate((seen[10], seen[20])):
        assert set(rows) == set(cell.splits.train[teacher.group.numpy() != number])


@pytest.mark.slow
def test_the_script_fills_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(ensemble, "EPOCHS", 1)
    monkeypatch.setattr(ensemble, "SPLITS", (0, 1))
    features, runs = write_features(tmp_path / "small.npz", 600), tmp_path / "runs.csv"
    ensemble.fill(runs, features, 40, 300, [8])
    rows = ensemble.read(runs)
    assert len([row for row in rows if row["trial"]]) == 3 + 3 * 4
    assert len(rows) == 3 + 3 * 4 + 2 * (3 * 3 + 2)
    assert all((row["test/text->image"] == "") == (row["trial"] == "yes") for row in rows)
    monkeypatch.setattr(ensemble.Cell, "head", None)
    ensemble.fill(runs, features, 40, 300, [8])
    assert ensemble.read(runs) == rows


def test_the_table_is_made_of_its_runs():
    results = DOCS / "reference" / "results"
    rows = [row for row in ensemble.read(results / "tables" / "ensemble-runs.csv.gz") if not row["trial"]]
    page = (results / "ensemble.md").read_text(encoding="utf-8")
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert table == ensemble.table(rows)
    assert len(table) == 2 + 2 * len({(row["data"], row["n_bits"]) for row in rows})
    of_cell = [row for row in rows if (row["data"], row["n_bits"]) == ("COCO-17", "32")]
    tasks = [key for key in rows[0] if key.startswith("leak_free/")]

    def by_split(method):
        each = [
            [float(row[key]) for row in of_cell if (row["method"], row["split"]) == (method, split) for key in tasks]
            for split in "012"
        ]
        return [100 * mean(values) for values in each]

    gains = [a - b for a, b in zip(by_split("cross-fitted"), by_split("one head"), strict=True)]
    half = 4.302653 * stdev(gains) / 3**0.5  # Student's t, 2 degrees of freedom
    cell = next(line for line in table if line.startswith("| COCO-17 | 32 | R∖T"))
    found = [
        float(part)
        for part in cell.split("|")[6]
        .replace("−", "-")
        .replace("\\", "")
        .replace("[", "")
        .replace("]", "")
        .replace(",", "")
        .split()
    ]
    assert found == pytest.approx([mean(gains), mean(gains) - half, mean(gains) + half], abs=0.0051)
