"""From a configuration to a run's folder: records, splits, model, training. What becomes of it: `run_evaluation`."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from channelhash.config import RunConfig, SplitSettings, TrainSettings, read_config
from channelhash.data import DATA_KINDS
from channelhash.data.records import Records
from channelhash.data.splits import Splits, draw_splits, load_splits, save_splits
from channelhash.environment import environment, record_environment
from channelhash.errors import InputError
from channelhash.files import locked, remove_leftovers, write_text
from channelhash.losses import make_loss
from channelhash.metrics import HammingHistogram, hamming_histogram
from channelhash.models import MODELS, HashModel
from channelhash.models.hash_model import Progress
from channelhash.seeds import derive_seed
from channelhash.settings import Settings
from channelhash.training.batches import check_batch_size
from channelhash.training.distributed import (
    from_first,
    joined,
    launched_rank,
    local_device,
    rank,
    wait_for_all,
    world_size,
)
from channelhash.training.frozen_features import (
    Stages,
    encoder_of_rows,
    feature_mode,
    feature_records,
    training_sources,
)
from channelhash.training.sources import Source
from channelhash.training.steps import pick_device
from channelhash.training.trainer import Validation, read_log, train


def silent(stage: str) -> Progress:
    return lambda done, total: None


def load_records(config: RunConfig, progress: Progress | None = None) -> Records:
    """The records of a configuration's data set; ``progress`` goes to loaders that have any to show."""
    return load_data(config.kind, config.source, progress)


def load_data(kind: str, source: Settings, progress: Progress | None = None) -> Records:
    """The records of a data set, from its kind and its loader's settings."""
    load = DATA_KINDS[kind].load
    extra = {"progress": progress} if "progress" in inspect.signature(load).parameters else {}
    return load(**{name: getattr(source, name) for name in type(source).model_fields}, **extra)


def make_splits(split: SplitSettings, records: Records) -> Splits:
    """The partitions that a configuration asks for: read from its file, or drawn."""
    if split.splits is not None:
        return load_splits(split.splits, records)
    return draw_splits(records, split.queries, split.train, split.validation_queries, split.seed, split.split_method)


def create_model(config: RunConfig, train_records: Records) -> HashModel:
    """The untrained model of a configuration; its weights are drawn from ``train.seed``."""
    torch.manual_seed(derive_seed(config.train.seed, "weights"))
    settings = {name: getattr(config.model, name) for name in type(config.model).model_fields}
    model = MODELS[config.model_name].create(train_records, config.n_bits, **settings)
    model.set_precision(config.train.precision)
    return model


def create_loss(config: RunConfig, n_labels: int) -> nn.Module:
    """The loss of a configuration for ``n_labels`` labels; what it trains itself is drawn from ``train.seed``."""
    torch.manual_seed(derive_seed(config.train.seed, "loss"))
    settings = {
        name: getattr(section, name) for section in (config.loss, config.terms) for name in type(section).model_fields
    }
    return make_loss(config.loss_name, config.n_bits, n_labels, **settings)


def start_run(config: RunConfig, folder: Path, resume: bool = False, stages: Stages = silent) -> dict[str, Any]:
    """Train what ``config`` says into ``folder`` and evaluate it on the validation partition.

    The folder gets ``config.yaml``, ``splits.json``, ``environment.json``, ``log.jsonl``, ``checkpoints/``, TensorBoard
    events and, at the end, ``model/`` (the last epoch's weights, the primary result of ``protocol.md`` § 6).

    Args:
        config: what to do.
        folder: a new folder, or with ``resume`` one that holds the same configuration.
        resume: go on with a run that was interrupted; a finished run is left as it is.
        stages: where progress goes.

    Returns:
        ``{"run": folder, "epochs": n, "loss": last epoch's mean, "validation": {task: mAP_T}, "problems": [lines]}``;
        the problems (rows left out or repaired) are in ``problems.txt`` too.

    Raises:
        InputError: the folder is in use or holds another run, or the data cannot be used.
        JobError: the loss became NaN.
    """
    with (
        joined(local_device(pick_device(config.train.device))),
        _lock(folder) if launched_rank() == 0 else nullcontext(),
    ):
        if rank() == 0:
            _claim(folder, config, resume)
        wait_for_all()
        if not from_first((folder / "model" / "config.json").exists()):
            _train(config, folder, resume, stages)
    log = read_log(folder / "log.jsonl")
    validations = [entry["validation"] for entry in log if "validation" in entry]
    return {
        "run": str(folder),
        "epochs": len(log),
        "loss": log[-1]["loss"],
        "validation": validations[-1] if validations else {},
        "problems": (folder / "problems.txt").read_text(encoding="utf-8").splitlines(),
    }


def _train(config: RunConfig, folder: Path, resume: bool, stages: Stages) -> None:
    records = load_records(config)
    splits_file = folder / "splits.json"
    if rank() == 0:
        if not (resume and splits_file.exists()):
            save_splits(make_splits(config.split, records), records, splits_file, config.split.model_dump(mode="json"))
        write_text(folder / "problems.txt", "".join(f"{line}\n" for line in records.problems))
        device = local_device(pick_device(config.train.device))
        record_environment(folder / "environment.json", environment(device, world_size()))
    wait_for_all()
    splits = load_splits(splits_file, records)
    check_batch_size(len(splits.train), config.train.batch_size)
    train_rows = torch.from_numpy(records.labels[splits.train])
    model, sources, validate = _prepare(config, records, splits, stages)
    loss, stage = create_loss(config, train_rows.shape[1]), stages(f"train {config.loss_name}")
    train(model, loss, sources, train_rows, config.train, folder, validate, stage, resume)
    if rank() == 0:
        model.save_pretrained(folder / "model")
    wait_for_all()


def _prepare(
    config: RunConfig, records: Records, splits: Splits, stages: Stages
) -> tuple[HashModel, dict[str, Source], Callable[[HashModel], Validation] | None]:
    """The model that is trained, its inputs and its validation. Unless inputs come ``online``, that model has no
    frozen backbone any more: the memory of the backbone is free again."""
    train_records = records.take(splits.train)
    model = create_model(config, train_records).to(local_device(pick_device(config.train.device)))
    mode = feature_mode(model, config.train)
    features = feature_records(model, records, config.train, stages)
    sources = training_sources(model, train_records, features.take(splits.train), mode, config.train, stages)
    light = model.on_features()
    validate = _validation(light, features, splits, config.train, stages)
    return (model if mode == "online" else light), sources, validate


def _validation(
    light: HashModel, features: Records, splits: Splits, settings: TrainSettings, stages: Stages
) -> Callable[[HashModel], Validation] | None:
    """A function that gives tie-aware mAP by task on V_q and V_r; None where there are no validation rows.

    It encodes with ``light``, whose trained parts are those of the model that it is called with.
    """
    if not len(splits.validation_query) or not len(splits.validation_retrieval):
        return None
    parts = {"query": features.take(splits.validation_query), "database": features.take(splits.validation_retrieval)}
    if not relevant_pairs(parts["query"].labels, parts["database"].labels):
        raise InputError(
            f"none of the {len(parts['query'])} validation queries shares a label with the validation retrieval set; "
            "give more labelled rows, or set data.validation_queries to 0"
        )
    encoders = {role: encoder_of_rows(light, part, settings, stages) for role, part in parts.items()}

    def validate(_: HashModel) -> Validation:
        codes = {role: encode(light) for role, encode in encoders.items()}

        def histogram(query: str, database: str) -> HammingHistogram:
            return hamming_histogram(
                codes["query"][query],
                codes["database"][database],
                parts["query"].labels,
                parts["database"].labels,
                n_bits=light.n_bits,
            )

        return {
            f"{query}->{database}": histogram(query, database).mean_average_precision()
            for query in light.modalities
            for database in light.modalities
        }

    return validate


def relevant_pairs(query_labels: NDArray[np.bool_], database_labels: NDArray[np.bool_]) -> bool:
    """Whether any query shares a label with any database item."""
    return bool((query_labels.any(axis=0) & database_labels.any(axis=0)).any())


def _claim(folder: Path, config: RunConfig, resume: bool) -> None:
    """Write ``config.yaml`` into a new folder, or check that a run to resume is the same one."""
    path = folder / "config.yaml"
    remove_leftovers(path)
    if not path.exists():
        if any(entry.name != ".lock" for entry in folder.iterdir()):
            raise InputError(f"{folder}: is not empty and not a run's folder; choose another --out")
        write_text(path, config.to_yaml())
    elif not resume:
        raise InputError(f"{folder}: already holds a run; add --resume to go on with it, or choose another --out")
    elif (before := read_config(path).to_yaml()) != config.to_yaml():  # an older version knew fewer keys
        raise InputError(
            f"{path}: was made with another configuration ({_difference(before, config)}); choose another --out"
        )


def _difference(before: str, config: RunConfig) -> str:
    old, new = before.splitlines(), config.to_yaml().splitlines()
    changed = [line.strip() for line in new if line not in old]
    return "; ".join(changed[:3]) or "keys were left out"


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold a run's folder."""
    with ExitStack() as stack:
        try:
            stack.enter_context(locked(folder / ".lock", wait=False))
        except BlockingIOError:
            raise InputError(f"{folder}: another process is working in this folder; wait for it to end") from None
        yield
