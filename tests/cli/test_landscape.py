"""``channelhash landscape``, as a person runs it."""

from small_runs import assert_refused, run_json


def test_the_page_is_written(tmp_path, capsys):
    page = tmp_path / "new" / "page.html"
    assert run_json(capsys, "landscape", "--out", page) == {"page": str(page)}
    assert page.read_text().startswith("<!doctype html>")
    assert_refused(capsys, "landscape", "--out", tmp_path, says="is a folder; name the page")
