"""The measurements that plans are computed from, in small."""

import pytest

from channelhash.errors import InputError
from channelhash.lab.benchmarks.scale import measure_encoders, measure_rates, rate_row
from channelhash.lab.capacity.cost import Need, plan
from channelhash.models import MODELS
from picture_runs import picture_records


@pytest.mark.slow
def test_a_plan_has_all_the_rates_it_needs(tmp_path):
    records = picture_records(tmp_path, 12)
    MODELS["small"].create(records, 16, width=8).save_pretrained(tmp_path / "mine")
    rates = measure_rates([1000, 2000], [16], [tmp_path / "mine"], list(records.items["image"]))
    assert all(each.seconds > 0 and each.core_seconds > 0 for each in rates.measurements)
    assert [each.encoder for each in rates.measurements if each.job == "encode"] == ["mine"]
    for items in (1000, 2000):
        found = plan(Need(items, bits=16, evaluation_queries=1000), rates)
        computed = {name for name, figure in found.items() if figure.source and figure.kind == "computed"}
        assert {name for name in computed if not name.startswith("nodes")} == {
            "hours.encode", "core_hours.encode", "search.core_seconds_per_second",
        }  # fmt: skip
    disk, index = (found[f"bytes.{name}"].value / 2000 for name in ("disk", "embedded"))
    # Two codes of two bytes with a row of four, in the index; the disk also has id, caption, words and rows.
    assert 2 * (2 + 4) <= index < disk
    rows = [rate_row(each) for each in rates.measurements]
    assert len({(row["what"].partition(" (")[0], row["size"]) for row in rows}) == len(rows)
    assert all(row["seconds"] > 0 for row in rows)


def test_two_models_of_one_name_are_refused(tmp_path):
    models = [tmp_path / "a" / "run", tmp_path / "b" / "run"]
    with pytest.raises(InputError, match="--model: 2 folders are called run; measure them in a run each"):
        measure_encoders(models)
