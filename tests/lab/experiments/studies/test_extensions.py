"""What each option adds to a loss."""

import csv

import pytest
import yaml
from scipy import stats

from channelhash.lab.experiments.base import DATASETS, METHODS
from channelhash.lab.experiments.results import read_grid
from channelhash.lab.experiments.stats.effects import option_effects
from channelhash.lab.experiments.studies.extensions import EXPERIMENT, EXTENSIONS, TEXT_AUGMENTATION
from channelhash.lab.experiments.tables.effects import all_option_effects, effects_plot, effects_tables
from channelhash.lab.experiments.tables.rendering import to_markdown
from lab.experiments.made_grids import assert_made_again, named_grid
from lab.experiments.made_results import CROSS_MODAL, made_result
from small_runs import run_command, write_features

BASE = (0.50, 0.52, 0.47)


def grid(bits=(32,), **gains):
    """DSCH, and methods that add so many points with each seed."""
    methods = {"DSCH": (0, 0, 0), **gains}
    return [
        made(name, seed, gain, n_bits) for n_bits in bits for name in methods for seed, gain in enumerate(methods[name])
    ]


def made(name, seed, gain, n_bits):
    share = BASE[seed] + gain / 100
    query_ap = dict.fromkeys(CROSS_MODAL, (share - 0.1, share, share, share + 0.1))
    return made_result(name, seed, share, n_bits=n_bits, query_ap=query_ap)


def test_an_effect_is_the_mean_difference_of_seeds_with_students_interval():
    results = grid(better=(2.0, 2.1, 2.2), unsure=(2.0, -1.0, 0.5))
    effects = {effect.name: effect for effect in option_effects(results, "DSCH", "image->text", 32)}
    assert list(effects) == ["better", "unsure"]
    interval = stats.ttest_1samp([2.0, -1.0, 0.5], 0).confidence_interval(0.95)
    assert (effects["unsure"].lower, effects["unsure"].upper) == pytest.approx((interval.low, interval.high))
    assert effects["unsure"].difference == pytest.approx(0.5)
    assert not effects["unsure"].clear
    assert effects["better"].difference == pytest.approx(2.1)
    assert effects["better"].clear
    assert effects["better"].seeds == 3


def test_seeds_that_only_one_has_are_left_out_and_one_seed_has_no_effect():
    results = [r for r in grid(some=(1.0, 2.0, 9.0), alone=(1.0, 1.0, 1.0)) if (r.method, r.seed) != ("DSCH", 2)]
    results = [r for r in results if r.method != "alone" or r.seed == 0]
    (effect,) = option_effects(results, "DSCH", "image->text", 32)
    assert (effect.name, effect.seeds) == ("some", 2)
    assert effect.difference == pytest.approx(1.5)


def test_a_row_is_an_option_and_a_column_a_task():
    results = grid((16, 32), better=(2.0, 2.1, 2.2), unsure=(2.0, -1.0, 0.5))
    results += [made_result("late", 0, n_bits=32, status="missing")]
    effects = all_option_effects(results, "DSCH")
    short, long = effects_tables(effects, title="Effect", notes="So it is.")
    assert (short.name, long.name) == ("effects-k16", "effects-k32")
    assert long.header == ("effect", "image → text", "text → image")
    assert [row[0].text for row in long.rows] == ["better", "unsure"]
    assert long.rows[0][1].text.startswith("+2.10 [+1.85, +2.35]")
    assert [cell.bold for row in long.rows for cell in row[1:]] == [True, True, False, False]
    assert long.caption.endswith("So it is.")
    assert "\n| --- | ---: | ---: |\n" in to_markdown(long)  # every task's column is flush right


def test_options_that_the_model_does_not_have_are_named():
    gains = dict.fromkeys(EXTENSIONS, (1.0, 2.0, 3.0))
    whole = EXPERIMENT.tables(grid(**gains))
    assert "Left out" not in whole[0].caption
    assert [row[0].text for row in whole[0].rows] == list(EXTENSIONS)
    assert any(table.name.startswith("significance") for table in whole)
    del gains[TEXT_AUGMENTATION]
    assert "this model's texts are no tokens: text augmentation." in EXPERIMENT.tables(grid(**gains))[0].caption


def test_the_plot_has_a_mark_and_a_bar_for_each_effect():
    effects = all_option_effects(grid((16, 32), better=(2.0, 2.1, 2.2), unsure=(2.0, -1.0, 0.5)), "DSCH")
    names = {name: name for name in ("better", "unsure")}
    panels = effects_plot(effects, "title", names, sideways=True).axes
    assert [panel.get_title() for panel in panels] == ["image → text", "text → image"]
    for panel in panels:
        assert [container.get_label() for container in panel.containers] == ["16 bits", "32 bits"]
        marks = panel.containers[1].lines[0]
        assert list(marks.get_xdata()) == pytest.approx([2.1, 0.5])
        assert list(marks.get_ydata()) == pytest.approx([0.09, 1.09])
        bar = panel.containers[1].lines[2][0].get_segments()[0]
        assert bar[:, 0] == pytest.approx([1.85, 2.35], abs=0.005)


@pytest.mark.parametrize("dataset", list(DATASETS))
def test_each_run_differs_from_dsch_by_its_option_alone(dataset, tmp_path):
    runs = named_grid("extensions", dataset, tmp_path, seeds=1).runs
    assert [run.method for run in runs] == ["DSCH", *EXTENSIONS]
    sections = {run.method: yaml.safe_load(run.config.to_yaml()) for run in runs}
    base = sections["DSCH"]
    assert base["model"]["n_bits"] == 32
    assert base["loss"].items() >= METHODS["DSCH"].items()
    for name, change in EXTENSIONS.items():
        expected = {section: {**keys, **change.get(section, {})} for section, keys in base.items()}
        assert sections[name] == expected
        assert expected != base


def test_the_command_leaves_effects_and_leaves_out_what_features_cannot_have(tmp_path, capsys):
    sections = {
        "data": {"kind": "features", "path": str(write_features(tmp_path / "f.npz")), "queries": 40, "train": 120},
        "model": {"name": "features", "hidden": [16]},
        "train": {"epochs": 1, "batch_size": 60, "learning_rate": 1e-3, "validate_every": 0},
    }
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(sections))
    out = tmp_path / "grid"
    arguments = ["experiment", "extensions", "--config", tmp_path / "base.yaml", "--bits", "8", "--seeds", "2"]
    assert run_command(*arguments, "--out", out) == 0
    printed = capsys.readouterr().out
    assert "Effect of each option beside DSCH on mAP_T in points, 8 bits" in printed
    assert "texts are no tokens: text augmentation" in printed
    _, results = read_grid(out)
    assert {result.method for result in results} == {"DSCH", *EXTENSIONS} - {TEXT_AUGMENTATION}
    assert {result.status for result in results} == {"finished"}
    with open(out / "tables" / "effects-k8.csv", newline="") as file:
        assert len(list(csv.reader(file))) >= len(EXTENSIONS)
    assert (out / "plots" / "effects.png").stat().st_size > 5_000
    assert_made_again("extensions", out)
