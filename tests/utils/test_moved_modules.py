"""Import paths of version 0.1 work and say where the module went."""

import importlib
import json
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import channelhash as ch
from channelhash.utils import moved_modules
from pages import ROOT

TABLE = json.loads(Path(moved_modules.__file__).with_suffix(".json").read_text(encoding="utf-8"))

#: What README, documentation and notebooks of version 0.1 import.
DOCUMENTED = {
    "codeset": ["CodeSet"],
    "codeset_files": ["read_export"],
    "config": ["make_config", "read_config"],
    "data": ["DATA_KINDS", "DataKind"],
    "data.coco": ["load_coco"],
    "data.records": ["Records", "labels_from_names"],
    "data.simulated": ["load_simulated"],
    "data.synthetic": ["load_synthetic"],
    "errors": ["InputError"],
    "experiments.code_plots": ["channel_distances_plot", "runs_precision_recall_plot", "write_retrieval_sheet"],
    "experiments.landscape": ["channel", "pair_loss"],
    "explaining": ["explain"],
    "explaining.kept_meanings": ["of_codes"],
    "indexing.stores": ["create_store"],
    "losses": ["DSCHLoss", "LossWithTerms", "make_loss"],
    "losses.channel_terms": ["Outputs", "channel_error"],
    "losses.items": ["Items"],
    "losses.orthohash": ["OrthoHashLoss"],
    "metrics": ["average_precisions_in_order", "evaluate", "hamming_histogram"],
    "models.features": ["create_features_model"],
    "models.hash_model": ["Branch", "HashModel", "ModelKind", "feature_rows"],
    "plot_style": ["COLORS", "line", "write_figure"],
    "run": ["start_run"],
    "run_evaluation": ["evaluate_run"],
    "search": ["Answers", "Item", "Store", "open_store"],
    "search.answers": ["Hit", "Wanted", "answer", "encode_questions", "load_encoder", "question_like"],
    "search.embedded": ["open_codes"],
    "search.exact": ["nearest", "within"],
    "search.store": ["Answers", "Item", "Store"],
}


@pytest.mark.parametrize("module", DOCUMENTED)
def test_documented_names_of_0_1_import(module):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        old = importlib.import_module(f"channelhash.{module}")
    for name in DOCUMENTED[module]:
        assert getattr(old, name) is not None


def test_an_old_path_warns_once_at_the_import_and_names_the_new_one():
    code = "import warnings; warnings.simplefilter('error')\nimport channelhash.codeset"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "DeprecationWarning: channelhash.codeset has moved to channelhash.codes.code_set" in done.stderr


def test_an_old_path_gives_the_same_class():
    sys.modules.pop("channelhash.codeset", None)
    with pytest.warns(DeprecationWarning, match=r"channelhash\.codeset has moved"):
        old = importlib.import_module("channelhash.codeset")
    assert old.CodeSet is ch.CodeSet


def test_every_old_path_leads_to_a_module():
    for new in TABLE["modules"].values():
        importlib.import_module(f"channelhash.{new}")


@pytest.mark.parametrize("old", TABLE["removed"])
def test_what_left_the_package_says_so_in_one_line(old):
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module(f"channelhash.{old}")
    page = TABLE["removed"][old]
    assert str(caught.value) == f"channelhash.{old} left the package ({page}); version 0.1 has it"
    assert (ROOT / page).exists()


def test_no_old_path_hides_a_module():
    root = Path(moved_modules.__file__).parents[1]
    for old in (*TABLE["modules"], *TABLE["removed"]):
        path = root.joinpath(*old.split("."))
        assert not path.with_suffix(".py").exists(), old
        assert not (path / "__init__.py").exists(), old


def test_an_unknown_module_is_still_not_found():
    with pytest.raises(ModuleNotFoundError, match=r"channelhash\.nothing"):
        importlib.import_module("channelhash.nothing")
