"""The plan of a collection, by hand."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channelhash.lab.capacity.cost import code_bytes, distinct_codes, index_bytes, plan
from channelhash.lab.capacity.measured_growth import JOBS, largest, rates, read_growth
from channelhash.lab.capacity.plans import Need, Prices

RATES = {"encode": 10.0, "evaluate": 1e6, "search": 1e6, "index": 1e4}


def test_the_plan_of_a_small_collection_by_hand():
    need = Need(
        items=1e6, bits=64, modalities=2, record_bytes=100, evaluation_queries=3600, queries_per_second=7,
        replicas=3, node_memory=1e7, node_cores=2, filled=0.5,
    )  # fmt: skip
    found = plan(need, RATES, Prices(node_month=10, gb_month=2, core_hour=3, gpu_hour=5))
    assert found["bytes"]["codes"] == 16e6
    assert found["bytes"]["disk"] == 116e6
    assert found["bytes"]["milvus"] == 64e6
    assert found["bytes"]["embedded"] == pytest.approx(32e6)  # all codes of 64 bits differ: 8 + 4 + 4 bytes, twice
    assert found["core_hours"] == {"encode": 1e5 / 3600, "evaluate": 1.0, "index": 200 / 3600}
    assert found["nodes"] == {"parts": 7, "by_memory": 21, "by_rate": 7, "total": 21}
    assert found["search"] == {"core_seconds": 1.0, "seconds": 1 / 14, "core_seconds_per_second": 7.0}
    assert found["money"]["once"] == pytest.approx(3 * (1e5 / 3600 + 1 + 200 / 3600))
    assert found["money"]["month"] == pytest.approx(21 * 10 + 3 * 0.116 * 2)


def test_many_queries_take_more_replicas_of_each_part():
    need = Need(items=1e6, bits=64, queries_per_second=100, replicas=1, node_memory=1e9, node_cores=10, filled=0.5)
    assert plan(need, RATES)["nodes"] == {"parts": 1, "by_memory": 1, "by_rate": 20, "total": 20}


def test_a_gpu_takes_the_encoding_off_the_cores():
    found = plan(Need(items=7.2e6, bits=64, pictures_per_gpu_second=1000), RATES)
    assert found["gpu_hours"] == 2.0
    assert found["core_hours"]["encode"] == 0
    assert "money" not in found


def test_codes_repeat_where_there_are_fewer_than_items():
    assert distinct_codes(1e9, 8) == pytest.approx(256)
    assert distinct_codes(2, 1) == pytest.approx(2 * (1 - 0.25))
    assert distinct_codes(1e6, 256) == pytest.approx(1e6)
    assert index_bytes(Need(items=1e9, bits=8, modalities=1))["embedded"] == pytest.approx(4e9)


@given(
    items=st.floats(1, 1e11), bits=st.integers(1, 512), replicas=st.integers(1, 5), rate=st.floats(0, 1e5)
)  # fmt: skip
def test_memory_and_rate_are_both_served(items, bits, replicas, rate):
    need = Need(items=items, bits=bits, replicas=replicas, queries_per_second=rate)
    found = plan(need, RATES)
    nodes, parts = found["nodes"]["total"], found["nodes"]["parts"]
    assert parts * need.node_memory * need.filled >= found["bytes"]["embedded"] * (1 - 1e-9)
    assert nodes >= parts * replicas
    assert nodes * need.node_cores * need.filled >= found["search"]["core_seconds_per_second"] * (1 - 1e-9)
    assert found["bytes"]["codes"] == need.modalities * items * code_bytes(bits)
    assert code_bytes(bits) == math.ceil(bits / 8)


def test_every_job_has_measurements_that_say_where_they_come_from():
    measurements = read_growth()
    assert set(rates(measurements)) == set(JOBS)
    for found in measurements:
        assert found.machine
        assert found.command
        assert found.core_seconds > 0
        assert found.units >= found.items
    assert largest(measurements)["evaluate"].items == max(m.items for m in measurements if m.job == "evaluate")
