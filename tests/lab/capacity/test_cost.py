"""The plan of a collection, by hand and against a literal transcription."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from channelhash.errors import InputError
from channelhash.lab.capacity.cost import Need, code_bytes, nested, plan
from channelhash.lab.capacity.rates import Measurement, Rates

#: Two sizes, so that the choice between them shows; wall time is half the processor time of two cores.
SIZES = {1000: 1.0, 1_000_000: 0.8}


def _measurements(n, faster):
    def measured(job, units, core_seconds, codes=1, n_bytes=None):
        return Measurement(job, n, units, core_seconds * faster / 2, core_seconds * faster, 64, codes, "", n_bytes)

    for m in (1, 2):
        yield measured("add", n, n / 5000, m, n * (200 + 50 * m))
        yield measured("index", m * n, m * n / 1e4, m, 16 * m * n)
        yield measured("open", n, n / 1e6, m)
    yield measured("query", n, n / 5e5)
    yield measured("search", n, n / 1e6)
    yield measured("evaluate", 1000 * n, n / 1000)


RATES = Rates(
    "a machine, 2 cores", 2, "2026-01-01", "by hand", {},
    [
        Measurement("encode", 100, 100, 5.0, 10.0, 64, encoder="slow"),
        Measurement("encode", 400, 400, 1.0, 2.0, 64, encoder="quick"),
        *(each for n, faster in SIZES.items() for each in _measurements(n, faster)),
    ],
    "rates.json",
)  # fmt: skip
NEED = Need(items=7.2e6, queries_per_second=7, replicas=3, node_memory=1e8, evaluation_queries=3600)


def test_the_plan_of_a_small_collection_by_hand():
    found = nested(plan(NEED, RATES))
    assert found["bytes"] == {"codes": 115.2e6, "disk": 300 * 7.2e6, "embedded": 230.4e6, "milvus": 460.8e6}
    assert found["core_hours"]["encode"] == 7.2e5 / 3600
    assert found["core_hours"]["add"] == pytest.approx(0.8 * 7.2e6 / 5000 / 3600)
    assert found["hours"]["add"] == pytest.approx(0.4 * 7.2e6 / 5000 / 3600)
    assert found["core_hours"]["index"] == pytest.approx(0.8 * 2 * 7.2e6 / 1e4 / 3600)
    assert found["core_hours"]["evaluate"] == pytest.approx(0.8 * 7.2)
    assert found["start"]["seconds"] == pytest.approx(0.4 * 7.2)
    assert found["nodes"] == {"parts": 4, "by_memory": 12, "by_rate": 32, "total": 32}
    assert found["search"]["core_seconds"] == pytest.approx(0.8 * 7.2)
    assert found["search"]["core_seconds_per_second"] == pytest.approx(7 * 0.8 * 7.2)
    assert found["search"]["seconds"] == pytest.approx(0.4 * 7.2e6 / 4 / 5e5)
    assert found["gpu_hours"] == 0


def _literal(need, rates):
    """The same numbers, each written out from the list of measurements."""
    m = need.modalities

    def job(name, codes=1, items=need.items):
        known = [e for e in rates.measurements if e.job == name and e.codes == codes and e.bits == need.bits]
        best = None
        for each in sorted(known, key=lambda e: e.items):
            if best is None or each.items <= items:
                best = each
        return best

    memory = m * need.items * job("index", m).n_bytes / job("index", m).units
    parts = max(1, math.ceil(memory / (need.node_memory * 0.7)))
    while need.items / parts >= 2**32:
        parts += 1
    core = need.items * job("search").core_seconds / job("search").units
    by_rate = parts * math.ceil(need.queries_per_second * core / (parts * (need.node_cores or rates.cores) * 0.7))
    query = job("query", items=need.items / parts)
    return {
        "bytes.disk": need.items * job("add", m).n_bytes / job("add", m).units,
        "bytes.embedded": memory,
        "hours.add": need.items * job("add", m).seconds / job("add", m).units / 3600,
        "hours.index": m * need.items * job("index", m).seconds / job("index", m).units / 3600,
        "hours.evaluate": need.evaluation_queries * need.items * job("evaluate").seconds / job("evaluate").units / 3600,
        "search.core_seconds": core,
        "search.seconds": need.items / parts * query.seconds / query.units,
        "start.seconds": need.items * job("open", m).seconds / job("open", m).units,
        "nodes.parts": parts,
        "nodes.by_rate": by_rate,
        "nodes.total": max(by_rate, parts * need.replicas),
    }


@given(
    items=st.floats(1, 1e11), modalities=st.integers(1, 2), replicas=st.integers(1, 5), rate=st.floats(0, 1e5),
    queries=st.integers(1, 10**6), memory=st.floats(1e8, 1e12), cores=st.none() | st.integers(1, 128),
)  # fmt: skip
def test_every_figure_is_the_literal_one(items, modalities, replicas, rate, queries, memory, cores):
    need = Need(
        items, modalities=modalities, replicas=replicas, queries_per_second=rate, evaluation_queries=queries,
        node_memory=memory, node_cores=cores,
    )  # fmt: skip
    found = plan(need, RATES)
    for name, value in _literal(need, RATES).items():
        assert found[name].value == pytest.approx(value, rel=1e-12), name


def test_a_figure_of_the_measured_size_and_work_is_measured():
    need = Need(items=1e6, evaluation_queries=1000)
    found = plan(need, RATES)
    measured = {name for name, figure in found.items() if figure.kind == "measured"}
    stored = {"bytes.disk", "bytes.embedded", "search.core_seconds", "search.seconds", "start.seconds"}
    assert measured == stored | {
        f"{kind}.{job}" for kind in ("hours", "core_hours") for job in ("add", "index", "evaluate")
    }
    assert all(figure.beyond is None for name, figure in found.items() if figure.source in RATES.measurements[2:])
    assert found["bytes.disk"].value == 300e6
    assert plan(replace(need, evaluation_queries=999), RATES)["hours.evaluate"].kind == "computed"


def test_a_larger_size_says_how_far_it_is_extrapolated():
    figure = plan(Need(items=1e9), RATES)["bytes.disk"]
    assert (figure.kind, figure.beyond, figure.source.items) == ("computed", 1000, 1_000_000)
    assert plan(Need(items=5000), RATES)["bytes.disk"].beyond == 5


def test_a_part_searches_at_the_size_of_the_part():
    need = Need(items=1e6, modalities=1, node_memory=16e6 / 1000 / 0.7)
    found = plan(need, RATES)
    assert found["nodes.parts"].value == 1000
    assert found["search.seconds"].source.items == 1000
    assert found["search.seconds"].kind == "measured"


def test_the_users_own_numbers_take_the_place_of_rates():
    found = plan(Need(items=7.2e6, pictures_per_gpu_second=1000, record_bytes=100), RATES)
    assert found["gpu_hours"].value == found["hours.encode"].value == 2.0
    assert found["core_hours.encode"].value == 0
    assert found["bytes.disk"].value == 116 * 7.2e6
    assert found["bytes.disk"].source is None


def test_an_encoder_is_chosen_by_name_and_is_otherwise_the_slowest():
    assert plan(NEED, RATES)["hours.encode"].source.encoder == "slow"
    assert plan(replace(NEED, encoder="quick"), RATES)["core_hours.encode"].value == 7.2e6 * 2 / 400 / 3600
    with pytest.raises(InputError, match=r"rates\.json: has no rate of the encoder other \(measured: slow, quick\)"):
        plan(replace(NEED, encoder="other"), RATES)


def test_a_code_length_that_was_not_measured_is_refused():
    with pytest.raises(InputError, match=r"at 65 bits \(code lengths measured: 64\); .* --bits 72 --out"):
        plan(replace(NEED, bits=65), RATES)
    assert plan(replace(NEED, bits=57), RATES).keys() == plan(NEED, RATES).keys()  # 8 bytes, too
    assert code_bytes(57) == 8
