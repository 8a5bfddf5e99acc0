"""The shape of four tasks is measured as said, and swapped labels show in it."""

from dataclasses import replace

import pytest

from channelhash.lab.experiments.paper.label_permutation import scores_by_setting, shape
from channelhash.lab.experiments.paper.printed_results import load_printed
from lab.experiments.made_results import TASKS


def test_gaps_and_highest_tasks():
    figures = [
        dict(zip(TASKS, values, strict=True))
        for values in ((70.0, 71.0, 80.0, 60.0), (70.0, 66.0, 60.0, 50.0), (50.0, 50.5, 51.0, 40.0))
    ]
    found = shape(figures)
    assert found.settings == 3
    assert (found.smallest_gap, found.mean_gap, found.largest_gap) == pytest.approx((0.5, 5.5 / 3, 4.0))
    assert found.highest == {"image->image": 2, "image->text": 1}


def test_filling_the_record_in_the_order_of_loops_gives_the_printed_shape():
    """The mAP of correct labels (I→I highest), written in loop order into the declared fields."""
    correct = dict(zip(TASKS, (67.0, 68.0, 76.0, 63.0), strict=True))
    loops = [correct[f"{asked}->{searched}"] for asked in ("image", "text") for searched in ("image", "text")]
    swapped = dict(zip(TASKS, loops, strict=True))
    assert (shape([correct]).highest, shape([correct]).largest_gap) == ({"image->image": 1}, 1.0)
    assert (shape([swapped]).highest, shape([swapped]).largest_gap) == ({"image->text": 1}, 9.0)
    # And the likely labels of the printed numbers undo just that.
    likely = {number.printed_task: number.likely_task for number in load_printed() if number.metric == "mAP_T"}
    assert {likely[task]: share for task, share in swapped.items()} == correct


def test_settings_that_two_tables_repeat_count_once():
    numbers = [number for number in load_printed() if number.table == "architectures" and number.model == "TDSRDH"]
    again = [replace(number, table="losses") for number in numbers]
    assert len(scores_by_setting(numbers, "printed_task")) == 6
    assert scores_by_setting([*numbers, *again], "printed_task") == scores_by_setting(numbers, "printed_task")
