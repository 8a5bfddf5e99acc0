"""A store that keeps projections: how it is made and opened, and what damage to a projection does."""

import json
from pathlib import Path

import numpy as np
import pytest
from tests.search.sqlite.damaging import change

import channelhash as ch
from channelhash.search.rank import _quantize, cosines
from channelhash.search.sqlite import store as sqlite_store
from channelhash.search.sqlite.check import check_store, repair_store
from channelhash.search.transfer import push
from refusals import check_refusal

N, N_BITS = 60, 12
NAMES = [f"i{row:02}" for row in range(N)]
OUTPUTS = np.random.default_rng(0).normal(size=(N, N_BITS))
CODES = ch.codes.pack(ch.codes.binarize(OUTPUTS))


@pytest.fixture
def folder(tmp_path) -> Path:
    with ch.open_store(tmp_path / "store", N_BITS, projections=True) as store:
        store.add(NAMES[:40], CODES[:40], projections=OUTPUTS[:40])
        store.add(NAMES[40:], {"text": CODES[40:]}, projections={"text": OUTPUTS[40:]})
    return tmp_path / "store"


def plain_store(folder: Path, *ids: str) -> Path:
    """A store without projections."""
    with ch.open_store(folder, n_bits=N_BITS) as store:
        store.add(ids, CODES[: len(ids)])
        assert not store.projected
    return folder


def kept(folder: Path) -> dict[str, dict[str, list[int]]]:
    with ch.open_store(folder) as store:
        rows_of = {item.id: item.projections for item in store.get(store.ids())}
    return {name: {modality: row.tolist() for modality, row in rows.items()} for name, rows in rows_of.items()}


QUANTIZED = _quantize(OUTPUTS).tolist()
EXPECTED = {name: {"image" if row < 40 else "text": QUANTIZED[row]} for row, name in enumerate(NAMES)}


def test_whether_a_store_keeps_projections_is_settled_when_it_is_made(folder, tmp_path):
    for projections in (False, True):
        with ch.open_store(folder, projections=projections) as store:
            assert store.projected
    assert json.loads((folder / "store.json").read_text())["projected"] is True
    plain = plain_store(tmp_path / "plain", "a")
    assert json.loads((plain / "store.json").read_text())["projected"] is False
    for place, says in (
        (plain, "keeps no projections beside its codes; choose another store"),
        ("milvus+http://localhost:1", "keeps no projections; make a store in a folder"),
        (tmp_path / "codes.parquet", "holds codes without projections"),
    ):
        check_refusal(says, ch.open_store, place, projections=True)
    with ch.open_store(folder) as store:
        facts = store.info()
    assert facts["projections"]
    assert facts["bytes_an_item"] == {"code": 2, "projection": 12, "disk": round(facts["bytes"] / N)}


def test_projections_come_with_every_code_or_with_none(folder, tmp_path):
    with ch.open_store(folder) as store:
        check_refusal("keeps projections; give those of the codes", store.upsert, NAMES[:1], CODES[:1])
        says = "are not the outputs of which the codes are the signs"
        check_refusal(says, store.upsert, NAMES[:1], CODES[:1], projections=-OUTPUTS[:1])
    assert kept(folder) == EXPECTED
    plain = ch.open_store(tmp_path / "plain", n_bits=N_BITS)
    check_refusal("keeps no projections", plain.add, NAMES[:1], CODES[:1], projections=OUTPUTS[:1])
    check_refusal("keeps no projections; search its codes", plain.search_projections, OUTPUTS)
    assert len(plain) == 0


def test_all_items_of_a_small_store_and_the_nearest_of_a_large_one_are_scored(folder, monkeypatch):
    with ch.open_store(folder) as store:
        question = np.random.default_rng(1).normal(size=N_BITS)
        scores = dict(zip(NAMES, cosines(question, _quantize(OUTPUTS[:40])), strict=False))
        assert store.search_projections(question[None], 5).ids == [sorted(scores, key=scores.get)[:-6:-1]]
        monkeypatch.setattr(sqlite_store, "ALL", 39)
        monkeypatch.setattr(sqlite_store, "FIRST", 7)
        nearest = store.search(ch.codes.pack(question[None] >= 0), 7).ids[0]
        assert store.search_projections(question[None], 5).ids == [sorted(nearest, key=scores.get)[:-6:-1]]
        few = store.search_projections(question[None], 5, where="id < 'i20'").ids
        assert few == [sorted(NAMES[:20], key=scores.get)[:-6:-1]]


@pytest.mark.parametrize("value", ["x'010203040506070809101112'", "x'01'", "NULL", "5"])
def test_a_damaged_projection_is_found_not_answered_and_lost_in_a_repair(folder, value):
    change(folder, f"UPDATE codes SET projection = {value} WHERE serial = 4")
    assert [str(finding) for finding in check_store(folder)] == ["i03: the image code is damaged (row 4)"]
    check_refusal("is damaged", ch.open_store, folder)
    assert [str(finding) for finding in repair_store(folder).lost] == ["i03: its image code is lost"]
    assert check_store(folder) == []
    assert kept(folder) == {**EXPECTED, "i03": {}}


def test_a_projection_in_a_store_without_is_damage(tmp_path):
    plain = plain_store(tmp_path / "plain", *NAMES[:2])
    change(plain, "UPDATE codes SET projection = x'01' WHERE serial = 1")
    assert [str(finding) for finding in check_store(plain)] == ["i00: the image code is damaged (row 1)"]


def test_a_target_without_projections_gets_the_codes(folder, tmp_path):
    plain = plain_store(tmp_path / "plain", "x")
    pushed = push(folder, str(plain))
    assert (pushed.target_items, pushed.without_projections) == (N + 1, True)
    assert kept(plain) == {name: {} for name in [*NAMES, "x"]}
    check_refusal("keeps projections; give those of the codes", push, plain, str(folder))
