"""``channelhash landscape``, as a person runs it."""

import json

from small_runs import assert_refused, run_command


def test_the_page_and_the_plots_are_written(tmp_path, capsys):
    page, plots = tmp_path / "new" / "page.html", tmp_path / "plots"
    assert run_command("landscape", "--out", page, "--plots", plots, "--json") == 0
    written = json.loads(capsys.readouterr().out)
    assert written["page"] == str(page)
    assert page.read_text().startswith("<!doctype html>")
    assert sorted(written["plots"]) == sorted(str(path) for path in plots.iterdir())
    assert {path.suffix for path in plots.iterdir()} == {".png", ".svg"}


def test_places_that_cannot_be_written_are_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert_refused(capsys, "landscape", "--out", tmp_path, says="is a folder; name the page")
    arguments = ["landscape", "--out", tmp_path / "page.html", "--plots", tmp_path / "file"]
    assert_refused(capsys, *arguments, says="is a file; name a folder")
    assert not (tmp_path / "page.html").exists()
