import json
import re

import pytest

from channelhash.errors import InputError
from channelhash.lab.report.page import Table
from channelhash.lab.report.scores import headline, read_evaluations, score_blocks

TASKS = {
    "image->text": {
        "map_tie_aware": 0.5,
        "new_score": 0.25,
        "map_at": {"50": 0.75},
        "curve": [0.1, None],
        "queries": 3,
    },
    "text->image": {"map_tie_aware": 0.6, "chance": 0.125, "by_radius": {"recall": [0.0, 1.0, 0.5]}},
}


def test_every_key_becomes_a_row_whatever_it_is_called():
    (table,) = score_blocks("test split", TASKS)
    assert isinstance(table, Table)
    assert table.header == ["score", "image → text", "text → image"]
    assert table.rows == [
        ("mAP tie-aware", "50.00", "60.00"),
        ("new score", "25.00", "–"),
        ("mAP@50", "75.00", "–"),
        ("queries counted", "3", "–"),
        ("chance level", "–", "12.50"),
    ]


def test_the_headline_is_the_cross_modal_map_and_chance():
    tasks = TASKS | {"text->text": {"map_tie_aware": 0.9, "chance": 0.125}}
    found = headline([("test", tasks)])
    assert found == [("mAP image → text", "50.00 %"), ("mAP text → image", "60.00 %"), ("chance level", "12.50 %")]
    assert headline([]) == []


def test_figures_of_a_grids_run_are_found_by_epoch_and_view(tmp_path):
    epochs = {"last": {"test": TASKS, "leak_free": TASKS}, "best": {"validation": TASKS}}
    (tmp_path / "result.json").write_text(json.dumps({"epochs": epochs}))
    (tmp_path / "metrics.json").write_text(json.dumps({"tasks": TASKS}))
    titles = [title for title, _ in read_evaluations(tmp_path)]
    assert titles == ["test split, last epoch", "leak free, last epoch", "validation split, best epoch"]


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"tasks": {}}', '{"tasks": {"a->b": 0.5}}'])
def test_other_files_are_refused_by_name(tmp_path, text):
    (tmp_path / "metrics.json").write_text(text)
    with pytest.raises(InputError, match=re.escape("metrics.json: ")):
        read_evaluations(tmp_path)


def test_conventions_are_rows_of_their_own():
    report = {"conventions": {"sch": {"map@50": {"in_order": None, "lower": 0.25, "upper": 0.5}}}}
    rows = score_blocks("test split", {"image->text": report})[0].rows
    assert rows == [
        ("as others print it: sch map@50, in order", "–"),
        ("as others print it: sch map@50, lower", "25.00"),
        ("as others print it: sch map@50, upper", "50.00"),
    ]
