"""Fit a model to the training rows of a collection: its features, its inputs, its validation."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from channelhash.codes.code_set import CodeSet
from channelhash.config import RunConfig, TrainSettings
from channelhash.data.collection import Collection
from channelhash.data.records import Records
from channelhash.data.splits import Rows, Splits
from channelhash.errors import InputError
from channelhash.losses import HashLoss, make_loss, resolve_loss
from channelhash.metrics import hamming_histogram
from channelhash.metrics.recall import instance_recall
from channelhash.models import HashModel, resolve_model
from channelhash.models.aligned import fit_scales, rotate_outputs
from channelhash.training.distributed import local_device
from channelhash.training.inputs import (
    Source,
    TrainingSet,
    collection_features,
    encoder_of_rows,
    feature_mode,
    prepare_inputs,
    training_sources,
)
from channelhash.training.trainer import Validation, Validator, train
from channelhash.utils.environment import pick_device
from channelhash.utils.progress import StageProgress
from channelhash.utils.seeds import derive_seed


def create_model(config: RunConfig, train_records: Records) -> HashModel:
    """Return the untrained model of a configuration; its weights are drawn from ``train.seed``.

    Raises:
        InputError: as the model's own.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from channelhash.runs.demo import demo_config
    >>> records = Records(("a", "b"), {"text": ("a dog", "a dog")}, np.ones((2, 1), dtype=bool), ("dog",))
    >>> create_model(demo_config(Path("demo"), "dsch", quick=True), records).modalities
    ('text',)
    """
    torch.manual_seed(derive_seed(config.train.seed, "weights"))
    model = resolve_model(config.model_name).create(train_records, config.n_bits, **vars(config.model))
    model.name = config.model_name  # under which a saved model is built again, also one's own
    model.set_precision(config.train.precision)
    return model


def create_loss(config: RunConfig, n_labels: int) -> HashLoss:
    """Return the loss of a configuration for ``n_labels`` labels; its parameters are drawn from ``train.seed``.

    Raises:
        InputError: this loss needs a teacher, not labels.

    >>> from pathlib import Path
    >>> from channelhash.runs.demo import demo_config
    >>> type(create_loss(demo_config(Path("demo"), "tdsrdh", quick=True), n_labels=3)).__name__
    'TDSRDHLoss'
    """
    if resolve_loss(config.loss_name).needs_teacher:
        raise InputError(f"loss.name: {config.loss_name!r} takes a teacher, not labels; use `channelhash distill`")
    torch.manual_seed(derive_seed(config.train.seed, "loss"))
    return make_loss(config.loss_name, config.n_bits, n_labels, **vars(config.loss) | vars(config.terms))


def check_pairs(config: RunConfig, records: Records) -> None:
    """Check that records in one modality are not to be learned from pairs.

    Raises:
        InputError: the loss is over pairs of an image and a text, or there are neither pairs nor labels.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from channelhash.runs.demo import demo_config
    >>> records = Records(("a", "b"), {"text": ("a dog", "a dog")}, np.ones((2, 1), dtype=bool), ("dog",))
    >>> check_pairs(demo_config(Path("demo"), "dsch", quick=True), records)
    """
    if len(records.items) > 1:
        return
    only = next(iter(records.items))
    terms = config.terms.model_dump()
    if config.loss_name == "contrastive" or terms["contrastive"] or terms["pairs"]:
        key = "name: contrastive" if config.loss_name == "contrastive" else "pairs" if terms["pairs"] else "contrastive"
        raise InputError(f"loss.{key}: learns from pairs of an image and a text, and there are only {only}s")
    if not records.label_names:
        raise InputError(
            f"the data has only {only}s and no labels: nothing says which items are alike; add labels or pairs"
        )


# Training rows, evenly spaced, that the scales of features are taken from.
_SAMPLE = 20_000


@dataclass(frozen=True)
class Trainee:
    """A model with what it is trained and validated on.

    Attributes:
        model: the model that is trained. Unless its inputs come ``online`` it is ``feature_model``, so that the memory
            of the backbone is free again.
        feature_model: the same model without frozen backbones, which takes features; see `HashModel.on_features`.
        features: all rows of the collection, as ``feature_model`` takes them.
        sources: inputs of the training rows, as ``model`` takes them.
        images: ``(n,)`` which image each training row shows, for ``train.captions: one``.
        stored: codes that old items of the retrieval set keep, whatever the model makes of them now.
    """

    model: HashModel
    feature_model: HashModel
    features: Records
    sources: dict[str, Source]
    images: Tensor | None = None
    stored: CodeSet | None = None


def prepare(
    model: HashModel, collection: Collection, rows: Rows, settings: TrainSettings, progress: StageProgress
) -> Trainee:
    """Bring a model to its device, and compute or read the features that it is trained and validated on.

    Args:
        model: untrained, or trained so far. The caller keeps no other reference to it, see `Trainee`.
        collection: has the model's modalities.
        rows: the rows to train on.
        settings: the section ``train``.
        progress: stage -> its callback.

    Raises:
        InputError: there are fewer rows than one batch needs, or the settings do not go with the model.
    """
    train_records = collection.records.take(rows)
    images = training_images(train_records, settings)
    model.to(local_device(pick_device(settings.device)))
    mode = feature_mode(model, settings)
    features = collection_features(model, collection, settings, progress)
    sources = training_sources(model, train_records, features.take(rows), mode, settings, progress)
    feature_model = model.on_features()
    return Trainee(model if mode == "online" else feature_model, feature_model, features, sources, images)


def fit_scales_of(trainee: Trainee, rows: Rows) -> None:
    """Fit the scales of the features to the training ``rows``, at most 20,000, of an untrained model ``aligned``."""
    model = trainee.feature_model
    if model.name == "aligned":
        records = trainee.features.take(rows[:: -(-len(rows) // _SAMPLE)])
        fit_scales(model, {modality: prepare_inputs(model, records, modality) for modality in model.modalities})


def training_images(train: Records, settings: TrainSettings) -> Tensor | None:
    """Return `_images_of_rows` for ``captions: one``, else None.

    Raises:
        InputError: rows, or images where a row of each is taken, do not fill one batch.
    """
    images = _images_of_rows(train) if settings.captions == "one" else None
    n = len(train) if images is None else int(images.max()) + 1
    if settings.batch_size > n:
        raise InputError(f"train.batch_size is {settings.batch_size}, but there are {n} training rows; choose 1 … {n}")
    return images


def _images_of_rows(records: Records) -> Tensor:
    """Return ``(n,)`` which of the images 0 … m − 1 each row shows, by `Records.pair_ids`.

    >>> _images_of_rows(Records(("b", "a", "b"), {"text": ("", "", "")}, np.zeros((3, 0), dtype=bool), ())).tolist()
    [1, 0, 1]
    """
    return torch.from_numpy(np.unique(np.asarray(records.pair_ids, dtype=str), return_inverse=True)[1])


def fit(
    trainee: Trainee,
    loss: HashLoss,
    targets: Tensor,
    splits: Splits,
    settings: TrainSettings,
    folder: Path,
    progress: StageProgress,
) -> HashModel:
    """Train a model on its training rows, validate it on V_q and V_r (without labels on V_q alone), and return it.

    Args:
        trainee: see `prepare`.
        loss: see `trainer.train`.
        targets: for each training row what ``loss`` compares its outputs with: labels ``(n, c)``, or a teacher's
            outputs.
        splits: partitions of the collection.
        settings: the section ``train``.
        folder: the run's folder; a checkpoint in it is where the training goes on.
        progress: stage -> its callback.

    Raises:
        InputError: no validation query shares a label with the validation retrieval set.
        JobError: see `trainer.train`.
    """
    validate = _validation(trainee, splits, settings, progress)
    if settings.keep == "best" and not (validate and settings.validate_every):
        raise InputError("train.keep is best, but nothing is validated; give validation rows, or keep the last")
    data = TrainingSet(trainee.sources, targets, trainee.images)
    train(trainee.model, loss, data, settings, folder, validate, progress("train"))
    _rotate(trainee, splits.train, settings.seed)
    return trainee.model


def _rotate(trainee: Trainee, rows: Rows, seed: int) -> None:
    """Rotate the outputs of a model ``aligned`` whose leading ones are to be codes, see `rotate_outputs`."""
    model = trainee.feature_model
    if n_leading := model.architecture.get("nested"):
        records = trainee.features.take(rows)
        inputs = {modality: prepare_inputs(model, records, modality) for modality in model.modalities}
        rotate_outputs(model, inputs, _images_of_rows(records), n_leading, seed)


def _validation(trainee: Trainee, splits: Splits, settings: TrainSettings, progress: StageProgress) -> Validator | None:
    """Return the validation by tie-aware mAP on V_q and V_r, without labels by Recall@10 on V_q; None without rows."""
    if not len(splits.validation_query) or not len(splits.validation_retrieval):
        return None
    if not trainee.features.label_names:
        return _validation_by_recall(trainee, splits, settings, progress)
    model, stored = trainee.feature_model, trainee.stored
    query, database = (trainee.features.take(rows) for rows in (splits.validation_query, splits.validation_retrieval))
    if not relevant_pairs(query.labels, database.labels):
        raise InputError(
            f"none of the {len(query)} validation queries shares a label with the validation retrieval set; "
            "give more labelled rows, or set data.validation_queries to 0"
        )
    encode_query, encode_database = (encoder_of_rows(model, part, settings, progress) for part in (query, database))
    fixed = np.isin(splits.validation_retrieval, splits.retrieval[: len(stored) if stored else 0])
    stored_rows = np.searchsorted(splits.retrieval, splits.validation_retrieval[fixed])

    def scores() -> Validation:
        query_codes, database_codes = encode_query(), encode_database()
        if stored:
            for modality in model.modalities:
                database_codes[modality][fixed] = stored.codes[modality][stored_rows]
        return {
            f"{a}->{b}": hamming_histogram(
                query_codes[a], database_codes[b], query.labels, database.labels, n_bits=model.n_bits
            ).mean_average_precision()
            for a in model.modalities
            for b in model.modalities
        }

    return Validator(scores)


def _validation_by_recall(
    trainee: Trainee, splits: Splits, settings: TrainSettings, progress: StageProgress
) -> Validator | None:
    """Return the validation by instance retrieval among V_q; None where the model has one modality."""
    model, query = trainee.feature_model, trainee.features.take(splits.validation_query)
    if len(model.modalities) < 2:
        return None
    encode, images = encoder_of_rows(model, query, settings, progress), query.display_values("image")

    def scores() -> Validation:
        codes = CodeSet(query.ids, encode(), None, model.n_bits, images=images)
        return {task: report["recall_at"]["10"] for task, report in instance_recall(codes, codes).items()}

    return Validator(scores, "recall_at_10")


def relevant_pairs(query_labels: NDArray[np.bool_], database_labels: NDArray[np.bool_]) -> bool:
    """Return whether any query shares a label with any database item.

    >>> labels = np.eye(2, dtype=bool)
    >>> relevant_pairs(labels, labels), relevant_pairs(labels[:1], labels[1:])
    (True, False)
    """
    return bool((query_labels.any(axis=0) & database_labels.any(axis=0)).any())
