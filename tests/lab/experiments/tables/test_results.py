"""Means and spreads over seeds are right, the best is bold, and no run that is not there goes unseen."""

import re
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channelhash.errors import InputError
from channelhash.lab.experiments.rendering import Table
from channelhash.lab.experiments.results import Result
from channelhash.lab.experiments.tables import (
    all_views,
    architectures_table,
    best_means,
    gamma_w_table,
    losses_table,
    print_spread,
    spread,
)
from lab.experiments.made_results import TASKS, made_result

SCH = {"name": "sch", "kappa_q": 0.0}


def cells(table: Table) -> dict[tuple[str, str], list[str]]:
    """(block, row) -> texts, bold ones in stars."""
    return {
        (row[0].text, row[1].text): [f"*{cell.text}*" if cell.bold else cell.text for cell in row[2:]]
        for row in table.rows
    }


@given(st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_a_spread_is_mean_and_sample_deviation_in_percent(shares):
    found = spread(shares)
    assert found.mean == pytest.approx(100 * statistics.fmean(shares))
    assert found.std == pytest.approx(100 * statistics.stdev(shares), abs=1e-9)
    assert found.runs == len(shares)


def test_a_single_run_has_no_spread():
    assert np.isnan(spread([0.5]).std)
    assert print_spread(spread([0.5])) == "50.00"
    assert print_spread(spread([0.80, 0.82, 0.84])) == "82.00 ± 2.00"


@given(st.lists(st.one_of(st.none(), st.floats(0, 1)), max_size=6))
def test_the_best_are_those_that_print_the_highest_mean(shares):
    bold = best_means([None if share is None else spread([share]) for share in shares])
    printed = [None if share is None else float(f"{100 * share:.2f}") for share in shares]
    there = [value for value in printed if value is not None]
    assert bold == [len(there) > 1 and value == max(there) for value in printed]


def test_methods_stand_against_lengths_in_a_block_a_task():
    results = [
        made_result(
            method, seed, {task: share + 0.01 * seed + 0.1 * number for number, task in enumerate(TASKS)}, k, loss=loss
        )
        for method, loss, lift in (("SCH", SCH, 0.0), ("DSCH", None, 0.02))
        for k, share in ((64, 0.4 + lift), (16, 0.3 - lift))
        for seed in range(3)
    ]
    table = losses_table(results)
    assert table.header == ("Task", "Method", "k = 16", "k = 64")
    assert cells(table) == {
        ("image → text", "SCH"): ["*31.00 ± 1.00*", "41.00 ± 1.00"],
        ("image → text", "DSCH"): ["29.00 ± 1.00", "*43.00 ± 1.00*"],
        ("image → text", "chance"): ["30.00", "30.00"],
        ("text → image", "SCH"): ["*41.00 ± 1.00*", "51.00 ± 1.00"],
        ("text → image", "DSCH"): ["39.00 ± 1.00", "*53.00 ± 1.00*"],
        ("text → image", "chance"): ["30.00", "30.00"],
        ("image → image", "SCH"): ["*51.00 ± 1.00*", "61.00 ± 1.00"],
        ("image → image", "DSCH"): ["49.00 ± 1.00", "*63.00 ± 1.00*"],
        ("image → image", "chance"): ["30.00", "30.00"],
        ("text → text", "SCH"): ["*61.00 ± 1.00*", "71.00 ± 1.00"],
        ("text → text", "DSCH"): ["59.00 ± 1.00", "*73.00 ± 1.00*"],
        ("text → text", "chance"): ["30.00", "30.00"],
    }
    assert "over 3 seeds" in table.caption
    assert "R" in table.title
    assert "last epoch" in table.title


def test_runs_that_are_not_there_are_seen_in_their_cell_and_named_below():
    results = [
        made_result("DSCH", 0, 0.80),
        made_result("DSCH", 1, 0.82),
        made_result("DSCH", 2, status="failed"),
        made_result("SCH", 0, status="missing", loss=SCH),
        made_result("SCH", 1, status="failed", loss=SCH),
        made_result("SCH", 2, status="missing", loss=SCH),
        made_result("DSCH", 0, 0.9, n_bits=64),
    ]
    table = losses_table(results)
    found = cells(table)
    assert found["image → text", "DSCH"] == ["81.00 ± 1.41 (2 of 3; 1 failed)", "90.00"]
    assert found["image → text", "SCH"] == ["2 missing, 1 failed", "–"]
    assert "Failed: DSCH-k32-seed2 (out of memory)." in table.caption
    assert "Failed: SCH-k32-seed1 (out of memory)." in table.caption
    assert "Not run to the end: SCH-k32-seed0, SCH-k32-seed2." in table.caption


def test_a_grid_without_a_finished_run_says_so_in_every_cell():
    table = losses_table([made_result("DSCH", 0, status="missing"), made_result("DSCH", 1, status="failed")])
    assert cells(table) == {("every task", "DSCH"): ["1 missing, 1 failed"], ("every task", "chance"): ["–"]}


def test_runs_of_unknown_settings_are_named_below():
    never = Result("DSCH-k64-seed0", made_result("DSCH", 0).folder, "DSCH", {}, "missing")
    table = losses_table([made_result("DSCH", 0), never])
    assert cells(table)["image → text", "DSCH"] == ["50.00"]
    assert "In no cell, because they never started: DSCH-k64-seed0." in table.caption


def test_a_view_that_a_run_lacks_is_seen():
    results = [made_result("DSCH", 0, views=("test", "leak_free")), made_result("DSCH", 1)]
    assert cells(losses_table(results, "leak_free"))["image → text", "DSCH"] == ["50.00 (1 of 2; 1 not evaluated)"]


def test_cells_hold_seeds_of_one_method_only():
    with pytest.raises(InputError, match="DSCH-k32-seed1 and DSCH-k32-seed0 stand in one cell but differ"):
        losses_table([made_result("DSCH", 0), made_result("DSCH", 1, loss=SCH)])
    with pytest.raises(InputError, match="are the same method, length and seed"):
        losses_table([made_result("DSCH", 0), made_result("DSCH", 0)])


def test_chance_is_a_range_where_the_data_differ():
    results = [made_result("DSCH", 0, chance=0.3), made_result("DSCH", 1, chance=0.32)]
    assert cells(losses_table(results))["image → text", "chance"] == ["30.00 … 32.00"]


def test_architectures_stand_side_by_side():
    results = [
        made_result(method, seed, share + 0.02 * seed, model=model, loss=loss)
        for model, lift in (("tdsrdh", 0.0), ("cliphash", 0.1))
        for method, loss, share in (("SCH", SCH, 0.5), ("DSCH", None, 0.6 - 2 * lift))
        for seed in range(2)
    ]
    table = architectures_table(results)
    assert table.header == ("Task", "Method", "tdsrdh, k = 32", "cliphash, k = 32")
    assert cells(table)["image → text", "SCH"] == ["51.00 ± 1.41", "*51.00 ± 1.41*"]
    assert cells(table)["image → text", "DSCH"] == ["*61.00 ± 1.41*", "41.00 ± 1.41"]


def test_a_sweep_shows_both_figures():
    results = [
        made_result(
            f"DSCH γ_w = {value}", seed, share + 0.02 * seed, loss={"name": "dsch", "gamma_w": value},
            roc_auc=roc_auc, views=("validation",),
        )
        for value, share, roc_auc in ((10.0, 0.6, 0.7), (2.0, 0.5, 0.8), (2.5, 0.6, None))
        for seed in range(2)
    ]  # fmt: skip
    table = gamma_w_table(results)
    assert table.header == ("Figure", "γ_w", "image → text", "text → image")
    assert cells(table) == {
        ("mAP_T", "2"): ["51.00 ± 1.41"] * 2,
        ("mAP_T", "2.5"): ["*61.00 ± 1.41*"] * 2,
        ("mAP_T", "10"): ["*61.00 ± 1.41*"] * 2,
        ("mAP_T", "chance"): ["30.00"] * 2,
        ("ROC-AUC", "2"): ["*80.00 ± 0.00*"] * 2,
        ("ROC-AUC", "2.5"): ["2 undefined"] * 2,
        ("ROC-AUC", "10"): ["70.00 ± 0.00"] * 2,
        ("ROC-AUC", "chance"): ["50.00"] * 2,
    }
    with pytest.raises(InputError, match=r"SCH-k32-seed0: its loss has no gamma_w"):
        gamma_w_table([*results, made_result("SCH", 0, loss=SCH)])


def test_views_come_in_order_primary_first():
    results = [made_result("DSCH", 0, views=("validation", "leak_free", "test"), checkpoints=("best", "last"))]
    names = [table.name for table in all_views(losses_table, results)]
    assert names == [f"losses-{view}-{end}" for end in ("last", "best") for view in ("test", "leak_free", "validation")]
    assert all(re.fullmatch(r"[\w-]+", name) for name in names)
    sweep = [table.name for table in all_views(gamma_w_table, results, "validation")]
    assert sweep[:2] == ["gamma-w-validation-last", "gamma-w-test-last"]
    nothing = all_views(losses_table, [made_result("DSCH", 0, status="missing")])
    assert [table.name for table in nothing] == ["losses-test-last"]
