"""What a configuration names, made: records, partitions, model and loss of a run."""

import inspect
from collections.abc import Sequence

import torch
from torch import nn

from channelhash.config import RunConfig, SplitSettings, TrainSettings, read_run_config
from channelhash.data import DATA_KINDS
from channelhash.data.joining import choose_by_labels, join_records, join_splits
from channelhash.data.records import Records
from channelhash.data.splits import Splits, draw_splits, load_splits
from channelhash.errors import InputError
from channelhash.losses import TEACHER_LOSSES, make_loss
from channelhash.models import MODELS, HashModel
from channelhash.models.hash_model import Progress
from channelhash.seeds import derive_seed
from channelhash.settings import Settings
from channelhash.training.frozen_features import (
    Stages,
    feature_records,
)


def load_records(config: RunConfig, progress: Progress | None = None) -> Records:
    """The records of a configuration's data set; ``progress`` goes to loaders that have any to show.

    Of a run that extends another: the old records, then the new ones (`data.joining.join_records`).
    """
    return join_records(load_parts(config, progress))


def load_parts(config: RunConfig, progress: Progress | None = None) -> list[Records]:
    """The collections that `load_records` joins: those of the run that is extended, if any, then the new items."""
    old = [] if config.extend is None else load_parts(read_run_config(config.extend.run), progress)
    records = load_data(config.kind, config.source, progress)
    return [*old, choose_by_labels(records, config.split.only_labels, config.split.without_labels)]


def load_data(kind: str, source: Settings, progress: Progress | None = None) -> Records:
    """The records of a data set, from its kind and its loader's settings."""
    load = DATA_KINDS[kind].load
    extra = {"progress": progress} if "progress" in inspect.signature(load).parameters else {}
    return load(**{name: getattr(source, name) for name in type(source).model_fields}, **extra)


def features_of_parts(model: HashModel, parts: Sequence[Records], settings: TrainSettings, stages: Stages) -> Records:
    """`feature_records` of joined collections; each has a cache of its own, which what came before has filled."""
    return join_records([feature_records(model, part, settings, stages) for part in parts])


def make_splits(split: SplitSettings, records: Records) -> Splits:
    """The partitions that a configuration asks for: read from its file, or drawn."""
    if split.splits is not None:
        return load_splits(split.splits, records)
    return draw_splits(records, split.queries, split.train, split.validation_queries, split.seed, split.split_method)


def draw_run_splits(config: RunConfig, parts: Sequence[Records]) -> Splits:
    """The partitions of a run; of an extension the old items keep those that they had."""
    new = make_splits(config.split, parts[-1])
    if config.extend is None:
        return new
    old = join_records(parts[:-1])
    return join_splits(load_splits(config.extend.run / "splits.json", old), new, len(old))


def create_model(config: RunConfig, train_records: Records) -> HashModel:
    """The untrained model of a configuration; its weights are drawn from ``train.seed``."""
    torch.manual_seed(derive_seed(config.train.seed, "weights"))
    settings = {name: getattr(config.model, name) for name in type(config.model).model_fields}
    model = MODELS[config.model_name].create(train_records, config.n_bits, **settings)
    model.set_precision(config.train.precision)
    return model


def create_loss(config: RunConfig, n_labels: int) -> nn.Module:
    """The loss of a configuration for ``n_labels`` labels; what it trains itself is drawn from ``train.seed``.

    Raises:
        InputError: the loss is none of labels.
    """
    if config.loss_name in TEACHER_LOSSES:
        raise InputError(f"loss.name: {config.loss_name!r} takes a teacher, not labels; use `channelhash distill`")
    torch.manual_seed(derive_seed(config.train.seed, "loss"))
    settings = {
        name: getattr(section, name) for section in (config.loss, config.terms) for name in type(section).model_fields
    }
    return make_loss(config.loss_name, config.n_bits, n_labels, **settings)
