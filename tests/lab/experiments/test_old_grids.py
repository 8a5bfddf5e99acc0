"""Grids that an earlier version made are read, reported and resumed; nothing of them is trained again."""

import tarfile

import pytest

from channelhash.lab.experiments import runner
from channelhash.lab.experiments.results import read_grid
from pages import ROOT
from small_runs import assert_refused, run_command, write_features

#: What the tables held that the earlier version wrote.
ROWS = {
    "losses": ("losses-test-last", "| image → text | SCH | **38.98** |"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A grid of `losses` (SCH, DSCH), as the version of November 2026 wrote them."""
    with tarfile.open(ROOT / "tests" / "made_by_0_1" / "grids.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    for path in (*tmp_path.rglob("*.yaml"), *tmp_path.rglob("grid.json")):
        path.write_text(path.read_text().replace("/FOLDER", str(tmp_path)))
    write_features(tmp_path / "f.npz", 60)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("name", "losses"), [("losses", "sch,dsch")])
def test_an_old_grid_is_reported_and_goes_on(folder, monkeypatch, name, losses):
    title, before = read_grid(folder / name)
    assert {result.status for result in before} == {"finished"}
    assert run_command("report", folder / name) == 0
    assert title in (folder / name / "report.html").read_text()

    monkeypatch.setattr(runner, "run_and_evaluate", None)  # nothing is trained
    command = ["experiment", name, "--losses", losses, "--config", "base.yaml", "--bits", "8", "--seeds", "1"]
    assert run_command(*command, "--out", name) == 0
    after = read_grid(folder / name)
    assert after[0] == title
    assert [(result.name, result.method) for result in after[1]] == [(r.name, r.method) for r in before]
    table, row = ROWS[name]
    assert row in (folder / name / "tables" / f"{table}.md").read_text().splitlines()


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [("train:\n", "trains:\n", "it lacks 'train'"), ("n_bits: 8\n", "n_bits: eight\n", "model.n_bits is 'eight'")],
)
def test_a_grid_with_a_damaged_configuration_is_refused(folder, capsys, before, after, says):
    config = next((folder / "losses").glob("runs/*/config.yaml"))
    text = config.read_text()
    assert text.count(before) == 1
    config.write_text(text.replace(before, after))
    assert_refused(
        capsys, "report", folder / "losses", says=f"{config}: not a run's configuration ({says}); remove the"
    )
