"""``channelhash scale``, as a person runs it."""

import json

from small_runs import assert_refused, run_command

QUICK = ("--runs", "3", "--tasks", "20", "--workers", "4")


def test_help_shows_an_example(capsys):
    assert run_command("scale", "--help") == 0
    assert "Example: channelhash scale" in " ".join(capsys.readouterr().out.split())


def test_json_has_the_plan_its_rates_and_the_simulations(tmp_path, capsys):
    arguments = ["scale", "--items", "1e9", "--bits", "64", *QUICK, "--price-node-month", "100", "--json"]
    assert run_command(*arguments, "--plots", tmp_path / "plots") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bytes"]["codes"] == 16e9
    assert found["money"]["month"] == 100 * found["nodes"]["total"]
    assert found["rates"]
    assert all(rate["command"] for rate in found["rates"].values())
    assert set(found["job"]) == {"no retry", "retry", "speculative"}
    assert found["serving"]["no"]["answered"] > 0.99
    names = {f"scale-{name}.{kind}" for name in ("growth", "cost", "completion") for kind in ("png", "svg")}
    assert {path.name for path in (tmp_path / "plots").iterdir()} == names


def test_the_table_shows_the_formula_and_where_rates_come_from(capsys):
    assert run_command("scale", "--items", "1e8", *QUICK) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "nodes × price of a node a month" in shown
    assert "channelhash benchmark" in shown


def test_what_cannot_be_planned_is_refused(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert_refused(capsys, "scale", "--items", "1e6", "--plots", tmp_path / "file", says="is a file; name a folder")
    assert_refused(capsys, "scale", "--items", "1e6", "--task-seconds", "1e6", says="shorter tasks")
    assert run_command("scale", "--items", "0") == 2
