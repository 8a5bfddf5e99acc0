"""The encoder of questions that lies beside a store, so that later searches need no PyTorch."""

import shutil
from contextlib import suppress
from pathlib import Path

from channelhash.errors import InputError, JobError
from channelhash.models import HashModel
from channelhash.models.exported import FOLDER, is_exported
from channelhash.models.feature_heads import FeatureRows
from channelhash.models.onnx_export import export_onnx
from channelhash.search.local.indexing_run import hold_run
from channelhash.utils.progress import no_stage_progress


def keep_exported(store: Path, model: HashModel) -> None:
    """Export a model's encoder of texts into a store, unless it is there; if it can be exported.

    Args:
        store: the store's folder.
        model: the model that made its codes.
    """
    if "text" not in model.modalities or isinstance(model.branch("text").prepare, FeatureRows):
        return  # it encodes no texts, or what others compute of them
    with hold_run(store, no_stage_progress):
        if is_exported(store / FOLDER, "text", model.fingerprint()):
            return
        shutil.rmtree(store / FOLDER, ignore_errors=True)
        with suppress(InputError, JobError):  # the model itself answers then
            export_onnx(model, store / FOLDER, ["text"])
