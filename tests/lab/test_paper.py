"""Grids on the paper's collections train its models, and are compared with its numbers under both
readings.
"""

import inspect
from collections import Counter
from itertools import product
from math import sqrt
from pathlib import Path

import pytest
import yaml

from channelhash.lab.experiments.experiment import METHODS, paper_configuration
from channelhash.lab.experiments.studies import printed as module
from channelhash.lab.experiments.studies.paper import _GAMMAS
from channelhash.lab.experiments.studies.printed import _within_spread, load_printed
from channelhash.lab.experiments.tables import Spread
from channelhash.losses import LOSSES as ALL_LOSSES
from data.mirflickr_tree import write_tree
from lab.grids import TASKS, made_result, named_grid
from small_runs import assert_refused, run_json

#: `protocol.md`, §§ 1 to 4 and 6, key by key.
DATA = {
    "mirflickr25k": {
        "queries": 2000,
        "train": 10000,
        "validation_queries": 2000,
        "min_tag_count": 20,
        "top_tags": None,
        "raw_tags": False,
        "label_names": None,
        "annotations": None,
    },
    "nuswide": {
        "queries": 2100,
        "train": 10500,
        "validation_queries": 2100,
        "n_labels": 21,
        "label_names": None,
        "require_pictures": True,
    },
}
SPLIT = {"seed": 0, "split_method": "random", "splits": None, "skip_bad": False}
MODELS = {
    "tdsrdh": {"backbone": "resnet152", "pretrained": "IMAGENET1K_V2", "freeze_backbone": True,
               "frozen_batchnorm": "eval", "word_vectors": "GoogleNews-vectors-negative300.bin",
               "segmentation_words": 3_000_000, "max_tokens": 128, "mask_padding": True,
               "image_size": 224, "unfreeze_blocks": 0,
               "hidden": None,  # image 4096, 4096, text 1024, 8192: `create_tdsrdh_model`
               "dropout": 0.1},
    "cliphash": {"backbone": "ViT-H-14-quickgelu", "pretrained": "dfn5b", "freeze_backbone": True,
                 "preprocess": "paper", "prompt": "{}", "normalize": False,
                 "unfreeze_blocks": 0,
                 "hidden": None,  # 4096, 4096, 1024, 256: `create_cliphash_model`
                 "dropout": 0.1},
}  # fmt: skip
TRAIN = {"epochs": 200, "batch_size": 128, "learning_rate": 1e-5, "schedule": "paper", "weight_decay": 0.0,
         "alternate": "epoch", "augment": "progressive", "easy_weights": "kinds", "precision": "float32",
         "feature_dtype": "float32", "features": "auto", "keep": "last", "captions": "all", "average": 0.0,
         "accumulate": 1, "patience": 0}  # fmt: skip
DSCH = {"name": "dsch", "gamma_w": 8.0, "lambda_neg": None, "tau": 1.0, "gamma_l": 1.0, "alpha": 1.0, "beta": 1.0,
        "kappa_q": 0.01}  # fmt: skip
LOSSES = {
    "TDSRDH": {"name": "tdsrdh", "alpha": 0.05, "beta": 1.0, "epsilon": 0.3},
    "SCH": {"name": "sch", "tau": 3.0, "alpha": 1.0, "beta": 1.0, "kappa_q": 0.0},
    "SCH + quantisation": {"name": "sch", "tau": 3.0, "alpha": 1.0, "beta": 1.0, "kappa_q": 0.01},
    "DSCH": DSCH,
}


def assert_is_the_papers(run, kind, model, n_bits, loss, seed):
    settings = yaml.safe_load(run.config.to_yaml())
    del settings["data"]["root"]  # where it lies
    assert settings["data"] == {"kind": kind, **DATA[kind], **SPLIT}
    assert settings["model"] == {"name": model, "n_bits": n_bits, **MODELS[model]}
    assert settings["loss"].items() >= loss.items()
    beside = {key: value for key, value in settings["loss"].items() if key not in loss}
    # no term, no hard negatives
    assert not any(value for key, value in beside.items() if key != "temperature")
    assert settings["train"].items() >= (TRAIN | {"seed": seed}).items()
    assert settings["train"].get("rates", {}) == {}


@pytest.mark.parametrize("kind", module._DATASETS)
def test_the_grids_are_built_by_the_protocol(kind, tmp_path):
    runs = named_grid("losses", kind, tmp_path, seeds=2).runs
    expected = [
        (k, loss, seed) for loss in LOSSES.values() for k in (16, 32, 64, 128) for seed in (0, 1)
    ]
    for run, (n_bits, loss, seed) in zip(runs, expected, strict=True):
        assert_is_the_papers(run, kind, "tdsrdh", n_bits, loss, seed)

    runs = named_grid("gamma-w", kind, tmp_path, seeds=1).runs
    for run, gamma_w in zip(runs, _GAMMAS, strict=True):
        assert_is_the_papers(run, kind, "tdsrdh", 32, {**DSCH, "gamma_w": gamma_w}, 0)

    runs = named_grid("architectures", kind, tmp_path, seeds=1).runs
    both = [(model, loss) for model in MODELS for loss in LOSSES.values()]
    for run, (model, loss) in zip(runs, both, strict=True):
        assert_is_the_papers(run, kind, model, 32, loss, 0)


def test_weights_and_word_vectors_of_ones_own_reach_the_model_that_they_are_of(tmp_path):
    overrides = ["model.pretrained=IMAGENET1K_V2@r.pt", "model.word_vectors=v.bin"]
    overrides += ["model.cliphash.pretrained=dfn5b@c.pt"]
    runs = named_grid("architectures", "nuswide", tmp_path, overrides, seeds=1).runs
    models = {run.config.model_name: run.config.model for run in runs}
    assert models["tdsrdh"].pretrained == "IMAGENET1K_V2@r.pt"
    assert str(models["tdsrdh"].word_vectors) == "v.bin"
    assert models["cliphash"].pretrained == "dfn5b@c.pt"
    assert models["cliphash"].preprocess == "paper"


def changed(model, kind="nuswide", **keys):
    """The paper's settings with ``section__key=value`` otherwise."""
    settings = paper_configuration(model, kind)
    for name, value in keys.items():
        section, key = name.split("__")
        settings[section] = {**settings[section], key: value}
    return settings


#: What the published code has otherwise than the protocol, whatever a run changes.
CODE = {"tdsrdh": {"model.frozen_batchnorm": ("eval", "train"), "model.mask_padding": (True, False),
                   "train.easy_weights": ("kinds", "angles")},
        "cliphash": {"train.easy_weights": ("kinds", "angles")}}  # fmt: skip


@pytest.mark.parametrize(("model", "change", "named"), [
    ("tdsrdh", {"model__pretrained": "IMAGENET1K_V2@/w/r.pt", "train__features": "bank"}, {}),
    ("tdsrdh", {"model__word_vectors": "/w/glove.txt"},
     {"model.word_vectors": ("/w/glove.txt", "GoogleNews-vectors-negative300.bin")}),
    ("cliphash", {"model__preprocess": "openclip"}, {"model.preprocess": ("openclip", "paper")}),
    ("tdsrdh", {"train__learning_rate": 1e-4, "train__batch_size": 512},
     {"train.learning_rate": (1e-4, 1e-5), "train.batch_size": (512, 128)}),
    ("tdsrdh", {"data__only_labels": ["sky"]}, {"data.only_labels": (["sky"], None)}),
], ids=str)  # fmt: skip
def test_every_difference_is_found(model, change, named):
    assert module._differences(changed(model, **change)) == {**CODE[model], **named}
    assert module._is_same_model(changed(model, **change))


@pytest.mark.parametrize(("model", "change"), [
    ("tdsrdh", {"model__word_vectors": None}),
    ("tdsrdh", {"model__pretrained": "/w/r.pt"}),  # whose weights are these?
    ("tdsrdh", {"model__hidden": {"image": [64]}}),
    ("cliphash", {"model__normalize": True}),
], ids=str)  # fmt: skip
def test_another_model_is_not_compared(model, change):
    assert not module._is_same_model(changed(model, **change))


def test_the_caption_names_each_difference():
    results = [run(seed=seed) for seed in (0, 1)]
    for result, rate in zip(results, (1e-4, 1e-3), strict=True):
        result.settings["train"].update(
            augment="progressive", precision="bfloat16", learning_rate=rate
        )
        result.settings["model"]["segmentation_words"] = 3_000_000
    caption = comparison_table(results, "losses").caption
    assert "Ours trained 30 epochs, the paper's 200." in caption
    listed = caption.partition("Other settings than the paper's: ")[2].partition(". The rows")[0]
    assert sorted(listed.split("; ")) == [
        "model.frozen_batchnorm train, ours eval", "model.mask_padding False, ours True",
        "train.easy_weights angles, ours kinds", "train.learning_rate 1e-05, ours 0.0001 and 0.001",
        "train.precision float32, ours bfloat16",
    ]  # fmt: skip


@pytest.fixture
def tree(tmp_path):
    """The archive's layout with ten pictures, and word vectors of two words."""
    words = "\n".join(f"{word} " + " ".join(["0.1"] * 300) for word in ("sea", "blue"))
    (tmp_path / "v.txt").write_text(f"2 300\n{words}\n")
    return write_tree(tmp_path / "mirflickr25k")


#: The fixture's sizes; and a small backbone, as no weights of the paper's are here.
SMALL = [
    "data.min_tag_count=2",
    "data.queries=1",
    "data.train=3",
    "data.validation_queries=1",
    "train.batch_size=2",
    "model.backbone=resnet18",
    "model.pretrained=null",
    "model.hidden={image: [8], text: [8]}",
]


def command(tree, *more):
    settings = [f"--set={setting}" for setting in SMALL]
    options = ["--dataset=mirflickr25k", "--seeds=1", f"--data={tree}", *settings, *more]
    return ["experiment", "losses", *options]


@pytest.mark.usefixtures("few_english_words")
def test_the_command_wants_word_vectors_and_is_planned_with_them(tree, tmp_path, capsys):
    says = (
        "model.word_vectors: GoogleNews-vectors-negative300.bin: no such file; give the word "
        "vectors of Google News"
    )
    assert_refused(capsys, *command(tree, "--out", tmp_path / "g"), says=says)
    assert_refused(capsys, *command(tree, "--dry-run"), says="with --set model.word_vectors=FILE")
    given = f"--set=model.word_vectors={tmp_path / 'v.txt'}"
    weights = "--set=model.pretrained=DEFAULT@none.pt"
    assert_refused(capsys, *command(tree, given, weights), says="none.pt: no such")
    planned = run_json(capsys, *command(tree, given, "--dry-run", "--out", tmp_path / "g"))
    assert len(planned["runs"]) == len(METHODS) * 4
    assert planned["total"]["trials"] == 0
    (plan,) = planned["plans"]
    expected = {"model": "tdsrdh", "runs": 16, "epochs": 200, "features": "bank"}
    assert plan.items() >= expected.items()
    assert plan["rows"]["train"] == 3
    assert not (tmp_path / "g").exists()


SCH = LOSSES["SCH"]


def comparison_table(results, table):
    return next(iter(module.comparison_tables(results, table)), None)


def run(method="DSCH", seed=0, shares=0.8, loss=DSCH, **more):
    more.setdefault("views", ("test", "validation"))
    # off, which the paper does not know
    loss = {"contrastive": 0.0, "temperature": 0.07, "pairs": 0.0} | loss
    shares = dict.fromkeys(TASKS, shares) if isinstance(shares, float) else shares
    return made_result(method, seed, shares, loss=loss, **more)


def texts(table):
    return {(row[0].text, row[1].text): [cell.text for cell in row[2:]] for row in table.rows}


def test_all_printed_numbers_are_there_and_only_labels_of_map_are_in_doubt():
    numbers = load_printed()
    assert Counter((number.table, number.metric, number.split) for number in numbers) == {
        ("losses", "mAP_T", "test"): 96, ("architectures", "mAP_T", "test"): 48,
        ("gamma_w", "mAP_T", "validation"): 56, ("gamma_w", "ROC-AUC", "validation"): 56,
    }  # fmt: skip
    assert all(40 < number.mean < 100 and 0 <= number.std <= 1 for number in numbers)
    # The record's fields in the order declared, filled in the order of two nested loops over
    # modalities.
    swapped = dict(
        zip(TASKS, ("image->image", "image->text", "text->image", "text->text"), strict=True)
    )
    for number in numbers:
        printed = number.printed_task
        assert number.likely_task == (printed if number.metric == "ROC-AUC" else swapped[printed])


@pytest.mark.parametrize("name", ["dsch", "sch", "tdsrdh"])
def test_the_defaults_of_a_loss_are_what_the_paper_ran(name):
    parameters = inspect.signature(ALL_LOSSES[name]).parameters
    defaults = {
        key: value.default for key, value in parameters.items() if key not in ("n_bits", "gamma_w")
    }
    assert defaults == module._LOSSES[name][1]


def test_both_readings_stand_beside_a_run():
    # Printed, DSCH, k = 32, MIRFLICKR-25k: I->T 86.49 ± 0.29, T->I 76.80 ± 0.18, I->I 78.52 ± 0.09,
    # T->T 70.80 ± 0.25.
    shares = {"image->text": 0.765, "text->image": 0.785, "image->image": 0.86, "text->text": 0.70}
    results = [
        run("DSCH", seed, {task: share + 0.002 * seed for task, share in shares.items()})
        for seed in range(3)
    ]
    table = comparison_table(results, "losses")
    label = "DSCH, k = 32"
    assert texts(table) == {
        ("mAP_T, image → text", label): [
            "76.70 ± 0.20",
            "86.49 ± 0.29",
            "−9.79",
            "no",
            "76.80 ± 0.18",
            "−0.10",
            "yes",
        ],
        ("mAP_T, text → image", label): [
            "78.70 ± 0.20",
            "76.80 ± 0.18",
            "+1.90",
            "no",
            "78.52 ± 0.09",
            "+0.18",
            "yes",
        ],
        ("mAP_T, image → image", label): [
            "86.20 ± 0.20",
            "78.52 ± 0.09",
            "+7.68",
            "no",
            "86.49 ± 0.29",
            "−0.29",
            "yes",
        ],
        ("mAP_T, text → text", label): [
            "70.20 ± 0.20",
            "70.80 ± 0.25",
            "−0.60",
            "no",
            "70.80 ± 0.25",
            "−0.60",
            "no",
        ],
    }
    assert [[cell.text for cell in row if cell.bold] for row in table.rows] == [
        ["−0.10"],
        ["+0.18"],
        ["−0.29"],
        [],
    ]
    assert (
        "Of 3 numbers whose label is in doubt, 0 are within as printed, 3 under the likely label"
        in table.caption
    )
    assert f"{(9.79 + 1.90 + 7.68) / 3:.2f} and {(0.10 + 0.18 + 0.29) / 3:.2f}" in table.caption
    assert "Ours trained 30 epochs" in table.caption
    assert "MIRFLICKR-25k" in table.title


def test_the_sweep_is_compared_on_validation_by_both_figures():
    results = []
    for w, seed in product((2.0, 14.0), range(2)):
        results.append(
            run(f"DSCH γ_w = {w:g}", seed, loss=DSCH | {"gamma_w": w}, kind="nuswide", roc_auc=0.81)
        )
    found = texts(comparison_table(results, "gamma_w"))
    assert len(found) == 16
    # Printed: mAP_T I->T 75.04 ± 0.08, T->I 66.90 ± 0.15; ROC-AUC I->T 79.58 ± 0.14.
    expected = ["80.00 ± 0.00", "75.04 ± 0.08", "+4.96", "no", "66.90 ± 0.15", "+13.10", "no"]
    assert found["mAP_T, image → text", "γ_w = 2"] == expected
    assert found["ROC-AUC, image → text", "γ_w = 2"][1:4] == ["79.58 ± 0.14", "+1.42", "no"]
    assert (
        found["ROC-AUC, image → text", "γ_w = 2"][1:4]
        == found["ROC-AUC, image → text", "γ_w = 2"][4:]
    )


def test_architectures_are_compared():
    found = texts(comparison_table([run("SCH", loss=SCH, model="cliphash")], "architectures"))
    assert set(found) == {
        (f"mAP_T, {task.replace('->', ' → ')}", "CLIPHash, SCH") for task in TASKS
    }
    # A single run has no spread.
    assert found["mAP_T, text → text", "CLIPHash, SCH"][1:4] == ["76.88 ± 0.45", "+3.12", "–"]


@pytest.mark.parametrize("unlike", [
    {"loss": SCH | {"kappa_q": 0.01}}, {"loss": DSCH | {"pairs": 0.1}}, {"loss": {"name": "own"}},
    {"kind": "synthetic"}, {"model": "small"}, {"n_bits": 48},
])  # fmt: skip
def test_runs_unlike_the_paper_are_not_compared(unlike):
    assert comparison_table([run(**unlike)], "losses") is None
    assert len(comparison_table([run(**unlike, seed=1), run()], "losses").rows) == 4


@pytest.mark.parametrize("std", [0.0, 0.3, 0.4])
def test_the_joint_spread_is_the_root_of_the_sum_of_squares(std):
    number = next(number for number in load_printed() if number.std == 0.3)
    edge = sqrt(0.3**2 + std**2)
    for distance in (0.999, -0.999, 1.001):
        assert _within_spread(Spread(number.mean + distance * edge, std, 3), number) == (
            distance < 1
        )


PAGE = (Path(__file__).parents[2] / "docs" / "explanation" / "paper-notes.md").read_text(
    encoding="utf-8"
)
NUMBERS = load_printed()
SHORT = {"image->text": "I→T", "text->image": "T→I", "image->image": "I→I", "text->text": "T→T"}
CELLS = {}  # (model, data set, n_bits, task) -> loss -> number
for number in NUMBERS:
    if number.split == "test":  # the table of architectures repeats cells of the table of losses
        place = number.model, number.dataset, number.n_bits, number.printed_task
        CELLS.setdefault(place, {})[number.loss] = number


def wins(cells):
    """Cells in which DSCH is strictly best, level with the best other loss, and behind it, to two
    decimals.
    """
    counts = {1: 0, 0: 0, -1: 0}
    for cell in cells:
        mean, best = (
            cell["DSCH"].mean,
            max(number.mean for name, number in cell.items() if name != "DSCH"),
        )
        counts[(mean > best) - (mean < best)] += 1
    return tuple(counts.values())


def lines():
    """The lines of the page, from the numbers."""
    best, tied, behind = wins(CELLS.values())
    yield (
        f"- DSCH on the {len(CELLS)} test cells: strictly best in {best}, tied in {tied}, behind "
        f"in {behind}."
    )
    for printed, likely in dict.fromkeys(
        (n.printed_task, n.likely_task) for n in NUMBERS if n.split == "test"
    ):
        counts = wins(cell for (*_, task), cell in CELLS.items() if task == printed)
        yield f"| {SHORT[printed]} | {SHORT[likely]} | {' | '.join(map(str, counts))} |"
    cells = [cell for (model, *_), cell in CELLS.items() if model == "TDSRDH"]
    _, tied, behind = wins(cells)
    yield (
        f"- On the {len(cells)} of them with the TDSRDH model: behind in {behind}, tied in {tied}."
    )
    cells = [cell for (_, _, n_bits, _), cell in CELLS.items() if n_bits >= 64]
    yield f"- At 64 and 128 bits: strictly best in {wins(cells)[0]} of {len(cells)}."
    gains = [cell["DSCH"].mean - cell["SCH"].mean for cell in CELLS.values()]
    level = sum(
        _within_spread(Spread(cell["DSCH"].mean, cell["DSCH"].std, 3), cell["SCH"])
        for cell in CELLS.values()
    )
    yield (
        f"- DSCH − SCH over the {len(gains)} cells: {min(gains):+.2f} to {max(gains):+.2f} points, "
        f"mean {sum(gains) / len(gains):+.2f}; within the joint spread in {level}."
    ).replace("-0", "−0")


@pytest.mark.parametrize("line", [*lines()])
def test_a_quoted_number_comes_out_of_the_tables(line):
    assert line in PAGE.splitlines()
