"""The printed numbers are there and of one piece; runs are compared with the right ones, under both readings."""

import inspect
from collections import Counter
from math import sqrt

import pytest

from channelhash.lab.experiments.paper import (
    _LOSSES,
    _printed_loss,
    comparison_table,
    load_printed,
    within_spread,
)
from channelhash.lab.experiments.tables import Spread
from channelhash.losses import LOSSES
from lab.experiments.made_results import TASKS, made_result

DSCH = {"name": "dsch", "gamma_w": 8.0} | _LOSSES["dsch"][1]
SCH = {"name": "sch"} | _LOSSES["sch"][1]


def run(method="DSCH", seed=0, shares=0.8, loss=DSCH, **more):
    more.setdefault("views", ("test", "validation"))
    return made_result(
        method, seed, dict.fromkeys(TASKS, shares) if isinstance(shares, float) else shares, loss=loss, **more
    )


def texts(table):
    return {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in table.rows}


def test_all_printed_numbers_are_there():
    numbers = load_printed()
    assert len(numbers) == 256
    assert Counter((number.table, number.metric, number.split) for number in numbers) == {
        ("losses", "mAP_T", "test"): 96,
        ("gamma_w", "mAP_T", "validation"): 56,
        ("gamma_w", "ROC-AUC", "validation"): 56,
        ("architectures", "mAP_T", "test"): 48,
    }
    assert all(40 < number.mean < 100 and 0 <= number.std <= 1 for number in numbers)


def test_only_labels_of_map_are_in_doubt():
    """The record's fields in the order declared, filled in the order of two nested loops over modalities."""
    swapped = dict(zip(TASKS, ("image->image", "image->text", "text->image", "text->text"), strict=True))
    for number in load_printed():
        assert number.likely_task == (
            number.printed_task if number.metric == "ROC-AUC" else swapped[number.printed_task]
        )


def test_the_table_of_architectures_repeats_that_of_losses():
    losses, again = (
        {
            (number.dataset, number.loss, number.printed_task): (number.mean, number.std)
            for number in load_printed()
            if (number.table, number.model, number.n_bits) == (table, "TDSRDH", 32)
        }
        for table in ("losses", "architectures")
    )
    assert losses == again
    assert len(again) == 24


@pytest.mark.parametrize("name", ["dsch", "sch", "tdsrdh"])
def test_the_defaults_of_a_loss_are_what_the_paper_ran(name):
    parameters = inspect.signature(LOSSES[name]).parameters
    defaults = {key: value.default for key, value in parameters.items() if key not in ("n_bits", "gamma_w")}
    assert defaults == _LOSSES[name][1]


def test_a_run_with_more_than_the_paper_knows_is_not_the_papers():
    run_before = {"name": "dsch", "gamma_w": 8.0, **_LOSSES["dsch"][1]}
    off = run_before | {"contrastive": 0.0, "temperature": 0.07, "pairs": 0.0}
    assert _printed_loss(run_before) == _printed_loss(off) == "DSCH"
    for more in ({"contrastive": 0.1}, {"pairs": 0.1}, {"kappa_q": 0.0}):
        assert _printed_loss(off | more) is None


def test_both_readings_stand_beside_a_run():
    # Printed, DSCH, k = 32, MIRFLICKR-25k: I->T 86.49 ± 0.29, T->I 76.80 ± 0.18, I->I 78.52 ± 0.09, T->T 70.80 ± 0.25.
    shares = {"image->text": 0.765, "text->image": 0.785, "image->image": 0.86, "text->text": 0.70}
    results = [run("DSCH", seed, {task: share + 0.002 * seed for task, share in shares.items()}) for seed in range(3)]
    table = comparison_table(results, "losses")
    label = "DSCH, k = 32"
    assert texts(table) == {
        ("mAP_T, image → text", label): ["76.70 ± 0.20", "86.49 ± 0.29", "−9.79", "no", "76.80 ± 0.18", "−0.10", "yes"],
        ("mAP_T, text → image", label): ["78.70 ± 0.20", "76.80 ± 0.18", "+1.90", "no", "78.52 ± 0.09", "+0.18", "yes"],
        ("mAP_T, image → image", label): [
            "86.20 ± 0.20",
            "78.52 ± 0.09",
            "+7.68",
            "no",
            "86.49 ± 0.29",
            "−0.29",
            "yes",
        ],
        ("mAP_T, text → text", label): ["70.20 ± 0.20", "70.80 ± 0.25", "−0.60", "no", "70.80 ± 0.25", "−0.60", "no"],
    }
    assert [[cell.text for cell in row if cell.bold] for row in table.rows] == [["−0.10"], ["+0.18"], ["−0.29"], []]
    assert "Of 3 numbers whose label is in doubt, 0 are within as printed, 3 under the likely label" in table.caption
    assert f"{(9.79 + 1.90 + 7.68) / 3:.2f} and {(0.10 + 0.18 + 0.29) / 3:.2f}" in table.caption
    assert "Ours trained 30 epochs" in table.caption
    assert "MIRFLICKR-25k" in table.title


def test_the_sweep_is_compared_on_validation_by_both_figures():
    results = [
        run(f"DSCH γ_w = {value:g}", seed, loss=DSCH | {"gamma_w": value}, kind="nuswide", roc_auc=0.81)
        for value in (2.0, 14.0)
        for seed in range(2)
    ]
    found = texts(comparison_table(results, "gamma_w"))
    assert len(found) == 16
    # Printed: mAP_T I->T 75.04 ± 0.08, T->I 66.90 ± 0.15; ROC-AUC I->T 79.58 ± 0.14.
    assert found["mAP_T, image → text", "γ_w = 2"] == [
        "80.00 ± 0.00", "75.04 ± 0.08", "+4.96", "no", "66.90 ± 0.15", "+13.10", "no",
    ]  # fmt: skip
    assert found["ROC-AUC, image → text", "γ_w = 2"][1:4] == ["79.58 ± 0.14", "+1.42", "no"]
    assert found["ROC-AUC, image → text", "γ_w = 2"][1:4] == found["ROC-AUC, image → text", "γ_w = 2"][4:]


def test_architectures_are_compared():
    found = texts(comparison_table([run("SCH", loss=SCH, model="cliphash")], "architectures"))
    assert set(found) == {(f"mAP_T, {task.replace('->', ' → ')}", "CLIPHash, SCH") for task in TASKS}
    # A single run has no spread.
    assert found["mAP_T, text → text", "CLIPHash, SCH"][1:4] == ["76.88 ± 0.45", "+3.12", "–"]


def test_a_failed_run_is_seen_beside_the_printed_number():
    found = texts(comparison_table([run(status="failed")], "losses"))
    assert found["mAP_T, image → text", "DSCH, k = 32"] == [
        "1 failed", "86.49 ± 0.29", "–", "–", "76.80 ± 0.18", "–", "–",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "unlike",
    [
        {"loss": SCH | {"kappa_q": 0.01}},
        {"loss": DSCH | {"gamma_w": 4.0}},
        {"loss": {"name": "own"}},
        {"kind": "synthetic"},
        {"model": "small"},
        {"n_bits": 48},
    ],
)
def test_runs_unlike_the_paper_are_not_compared(unlike):
    assert comparison_table([run(**unlike)], "losses") is None
    assert len(comparison_table([run(**unlike, seed=1), run()], "losses").rows) == 4


@pytest.mark.parametrize("std", [0.0, 0.3, 0.4])
def test_the_joint_spread_is_the_root_of_the_sum_of_squares(std):
    number = next(number for number in load_printed() if number.std == 0.3)
    edge = sqrt(0.3**2 + std**2)
    assert within_spread(Spread(number.mean + 0.999 * edge, std, 3), number)
    assert within_spread(Spread(number.mean - 0.999 * edge, std, 3), number)
    assert not within_spread(Spread(number.mean + 1.001 * edge, std, 3), number)
