"""``channelhash scale``, as a person runs it."""

import json

import pytest

from channelhash.cli import output
from channelhash.lab.capacity.rates import Measurement, Rates, write_rates
from small_runs import assert_refused, run_command


@pytest.fixture
def rates(tmp_path):
    """Rates of 1,000 items, one second for everything."""
    one = {"items": 1000, "seconds": 1.0, "core_seconds": 2.0, "bits": 64}
    measurements = [Measurement("encode", units=1000, encoder="mine", **one)]
    for codes in (1, 2):
        measurements += [Measurement("add", units=1000, codes=codes, n_bytes=500_000, **one)]
        measurements += [Measurement("index", units=1000 * codes, codes=codes, n_bytes=16_000 * codes, **one)]
        measurements += [Measurement("open", units=1000, codes=codes, **one)]
    measurements += [Measurement(job, units=1000, **one) for job in ("query", "search")]
    measurements += [Measurement("evaluate", units=10**6, **one)]
    write_rates(tmp_path / "rates.json", Rates("my machine", 2, "2026-01-01", "by hand", {}, measurements))
    return tmp_path / "rates.json"


def test_json_has_every_figure_with_its_basis(rates, capsys):
    assert run_command("scale", "--items", "1e9", "--rates", rates, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert {"need", "bytes", "core_hours", "gpu_hours", "search", "nodes", "rates"} <= set(found)
    assert found["bytes"] == {"codes": 16e9, "disk": 500e9, "embedded": 32e9, "milvus": 64e9}
    assert found["core_hours"]["encode"] == 2e6 / 3600
    values = {
        f"{part}.{key}" for part in ("bytes", "hours", "core_hours", "search", "start", "nodes") for key in found[part]
    }
    assert set(found["basis"]) == values | {"gpu_hours"}
    disk = found["basis"]["bytes.disk"]
    assert (disk["kind"], disk["rate"], disk["measured_items"], disk["extrapolated"]) == ("computed", "add", 1000, 1e6)
    assert found["rates"]["encode mine"]["machine"] == "my machine"
    assert set(found["rates"]) == {"encode mine", "add", "index", "open", "query", "search", "evaluate"}
    assert found["measured_on"]["file"] == str(rates)


def test_the_table_says_what_was_measured_and_what_was_computed(rates, capsys, monkeypatch):
    monkeypatch.setattr(output.results, "width", 200)
    assert run_command("scale", "--items", "1000", "--rates", rates) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "start: seconds │ 1 │ measured │ open: items × s / item │ 1,000 │" in shown
    assert "hours: evaluate │ 0.001389 │ computed │ evaluate: pairs × s / pair │ 1,000 │" in shown
    assert "my machine, 2026-01-01, by hand" in shown


def test_without_rates_it_names_the_machine_and_asks_for_yours(capsys):
    assert run_command("scale", "--items", "1e8") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "not of your machine; measure yours: channelhash benchmark scale --out rates.json" in shown
    assert "1e+08 items of 64 bits" in shown


@pytest.mark.parametrize(
    "option", ["--runs 3", "--seed 1", "--plots p", "--tasks 9", "--price-gpu-hour 2", "--slow-share 0.1"]
)
def test_what_nobody_had_measured_says_where_it_went(option, capsys):
    assert_refused(capsys, "scale", "--items", "1e6", *option.split(), says="nothing was measured behind them")


def test_what_cannot_be_planned_is_refused(tmp_path, rates, capsys):
    assert_refused(capsys, "scale", "--items", "1e6", "--rates", tmp_path / "no.json", says="no.json: no such file")
    assert_refused(
        capsys, "scale", "--items", "1e6", "--rates", rates, "--bits", 32, says="no rate of index at 32 bits"
    )
    assert_refused(capsys, "benchmark", "scale", "--out", tmp_path / "no" / "r.json", says="a folder that exists")
    assert_refused(capsys, "benchmark", "scale", "--bits", "12", says="multiples of 8")
    for option in (
        ["--items", "0"],
        ["--items", "1e6", "--record-bytes", "nan"],
        ["--items", "1e6", "--modalities", "3"],
    ):
        assert run_command("scale", *option) == 2
