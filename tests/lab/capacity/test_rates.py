"""Files of rates: what is written is read, and nothing else is."""

import json
from dataclasses import replace

import pytest

from channelhash.errors import InputError
from channelhash.lab.capacity.rates import Measurement, Rates, read_rates, shipped_rates, write_rates

RATES = Rates(
    "a machine, 2 cores",
    2,
    "2026-01-01",
    "by hand",
    {"python": "3.11"},
    [Measurement("add", 9, 9, 1.0, 2.0, 64, n_bytes=900)],
)


def test_what_is_written_is_read(tmp_path):
    write_rates(tmp_path / "rates.json", RATES)
    found = read_rates(tmp_path / "rates.json")
    assert found == Rates(**{**vars(RATES), "source": str(tmp_path / "rates.json")})


@pytest.mark.parametrize(
    "change",
    [
        {"measurements": []},
        {"measurements": [{"job": "add"}]},
        {"machine": None},
        {"cores": 0},
        *(
            {"measurements": [{**vars(RATES.measurements[0]), name: value}]}
            for name, value in (("seconds", 0), ("seconds", "x"), ("core_seconds", -1), ("units", 0), ("n_bytes", 0))
        ),
    ],
)
def test_what_is_no_file_of_rates_is_refused(tmp_path, change):
    path = tmp_path / "rates.json"
    write_rates(path, RATES)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(
        InputError, match=r"rates\.json: not a file of rates .*; write one with channelhash benchmark scale"
    ):
        read_rates(path)


def test_an_addition_without_its_bytes_is_refused(tmp_path):
    path = tmp_path / "rates.json"
    write_rates(path, replace(RATES, measurements=[replace(RATES.measurements[0], n_bytes=None)]))
    with pytest.raises(InputError, match=r"rates\.json: measurement 1 \(add\) has no n_bytes; write one with"):
        read_rates(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_rates(tmp_path / "rates.json")


def test_the_rates_of_the_package_say_where_they_come_from():
    rates = shipped_rates()
    assert rates.machine
    assert rates.command.startswith("channelhash benchmark scale")
    for codes in (1, 2):
        assert rates.nearest("add", 1e9, 64, codes).n_bytes
    assert rates.encoding().encoder
