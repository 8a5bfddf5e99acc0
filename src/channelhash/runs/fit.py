"""Training a model on the rows of a collection: features, sources, validation."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from channelhash.codes.code_set import CodeSet
from channelhash.config import RunConfig, TrainSettings
from channelhash.data.collection import Collection
from channelhash.data.records import Records
from channelhash.data.splits import Rows, Splits
from channelhash.errors import InputError
from channelhash.metrics import HammingHistogram, hamming_histogram
from channelhash.models import HashModel
from channelhash.runs.build import collection_features
from channelhash.training.batches import check_batch_size
from channelhash.training.distributed import (
    local_device,
)
from channelhash.training.feature_inputs import (
    encoder_of_rows,
    feature_mode,
    training_sources,
)
from channelhash.training.sources import Source
from channelhash.training.trainer import Validation, train
from channelhash.utils.device import pick_device
from channelhash.utils.progress import StageProgress


@dataclass(frozen=True)
class Trainee:
    """A model with what it is trained on.

    Attributes:
        model: what is trained: where inputs do not come ``online`` that is ``feature_model``, and the memory of the
            backbone is free again.
        feature_model: the same model without frozen backbones, on features.
        features: all rows of the collection, as ``feature_model`` takes them.
        sources: inputs of the training rows, as ``model`` takes them.
    """

    model: HashModel
    feature_model: HashModel
    features: Records
    sources: dict[str, Source]


def prepare(
    settings: TrainSettings, model: HashModel, collection: Collection, rows: Rows, progress: StageProgress
) -> Trainee:
    """Bring a model to its device, and make or read the features that it is trained and validated on.

    Args:
        settings: see `TrainSettings`.
        model: untrained, or trained so far; the caller keeps no other reference to it, see `Trainee`.
        collection: the model has its modalities.
        rows: that are trained on.
        progress: stage -> its callback.
    """
    check_batch_size(len(rows), settings.batch_size)
    model.to(local_device(pick_device(settings.device)))
    mode = feature_mode(model, settings)
    features = collection_features(model, collection, settings, progress)
    train_records = collection.records.take(rows)
    sources = training_sources(model, train_records, features.take(rows), mode, settings, progress)
    feature_model = model.on_features()
    return Trainee(model if mode == "online" else feature_model, feature_model, features, sources)


def fit(
    config: RunConfig,
    folder: Path,
    trainee: Trainee,
    splits: Splits,
    loss: nn.Module,
    targets: torch.Tensor,
    resume: bool,
    progress: StageProgress,
    stored: CodeSet | None = None,
) -> HashModel:
    """Train a model on its training rows; gives that model, trained.

    Args:
        config: what to do.
        folder: a run's folder.
        trainee: see `prepare`.
        splits: partitions of the collection, for the validation.
        loss: see `trainer.train`.
        targets: for each training row what ``loss`` compares its outputs with: labels ``(n, c)``, or a teacher's
            outputs.
        resume: go on from a checkpoint.
        progress: stage -> its callback.
        stored: codes that old items of the retrieval set have, whatever the model makes of them now.
    """
    validate = _validation(trainee.feature_model, trainee.features, splits, config.train, progress, stored)
    stage = progress(f"train {config.loss_name}")
    train(trainee.model, loss, trainee.sources, targets, config.train, folder, validate, stage, resume)
    return trainee.model


def _validation(
    feature_model: HashModel,
    features: Records,
    splits: Splits,
    settings: TrainSettings,
    progress: StageProgress,
    stored: CodeSet | None = None,
) -> Callable[[HashModel], Validation] | None:
    """A function that gives tie-aware mAP by task on V_q and V_r; None where there are no validation rows.

    It encodes with ``feature_model``, whose trained parts are those of the model that it is called with. Old items of
    V_r keep their ``stored`` codes.
    """
    if not len(splits.validation_query) or not len(splits.validation_retrieval):
        return None
    parts = {"query": features.take(splits.validation_query), "database": features.take(splits.validation_retrieval)}
    if not relevant_pairs(parts["query"].labels, parts["database"].labels):
        raise InputError(
            f"none of the {len(parts['query'])} validation queries shares a label with the validation retrieval set; "
            "give more labelled rows, or set data.validation_queries to 0"
        )
    encoders = {role: encoder_of_rows(feature_model, part, settings, progress) for role, part in parts.items()}
    fixed = np.isin(splits.validation_retrieval, splits.retrieval[: len(stored) if stored else 0])
    place = np.searchsorted(splits.retrieval, splits.validation_retrieval[fixed])

    def validate(_: HashModel) -> Validation:
        codes = {role: encode(feature_model) for role, encode in encoders.items()}
        if stored:
            for modality in feature_model.modalities:
                codes["database"][modality][fixed] = stored.codes[modality][place]

        def histogram(query: str, database: str) -> HammingHistogram:
            return hamming_histogram(
                codes["query"][query],
                codes["database"][database],
                parts["query"].labels,
                parts["database"].labels,
                n_bits=feature_model.n_bits,
            )

        return {
            f"{query}->{database}": histogram(query, database).mean_average_precision()
            for query in feature_model.modalities
            for database in feature_model.modalities
        }

    return validate


def relevant_pairs(query_labels: NDArray[np.bool_], database_labels: NDArray[np.bool_]) -> bool:
    """Whether any query shares a label with any database item."""
    return bool((query_labels.any(axis=0) & database_labels.any(axis=0)).any())
