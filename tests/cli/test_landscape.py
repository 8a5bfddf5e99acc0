"""``channelhash landscape``, as a person runs it."""

import json

from small_runs import assert_refused, run_command


def test_the_page_is_written(tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert run_command("landscape", "--out", page, "--json") == 0
    assert json.loads(capsys.readouterr().out) == {"page": str(page)}
    assert page.read_text().startswith("<!doctype html>")
    assert_refused(capsys, "landscape", "--out", tmp_path, says="is a folder; name the page")
