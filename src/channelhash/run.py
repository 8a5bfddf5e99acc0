"""From a configuration to a run's folder: records, splits, model, training. What becomes of it: `run_evaluation`."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from numpy.typing import NDArray
from torch import nn

from channelhash.codeset import CodeSet
from channelhash.config import ExtendSettings, RunConfig, SplitSettings, TrainSettings, read_config, read_run_config
from channelhash.data import DATA_KINDS
from channelhash.data.joining import choose_by_labels, join_records, join_splits
from channelhash.data.records import Records
from channelhash.data.splits import Rows, Splits, draw_splits, load_splits, save_splits
from channelhash.environment import environment, record_environment
from channelhash.errors import InputError
from channelhash.extension import (
    check_extension,
    describe_extension,
    extended_model,
    extension_loss,
    store_codes,
    stored_codes,
    training_rows,
)
from channelhash.files import locked, remove_leftovers, write_text
from channelhash.losses import TEACHER_LOSSES, make_loss
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
    """The records of a configuration's data set; ``progress`` goes to loaders that have any to show.

    Of a run that extends another: the old records, then the new ones (`data.joining.join_records`).
    """
    return join_records(load_parts(config, progress))


def load_parts(config: RunConfig, progress: Progress | None = None) -> list[Records]:
    """The collections that `load_records` joins: those of the run that is extended, if any, then the new items."""
    old = [] if config.extend is None else load_parts(read_run_config(config.extend.run), progress)
    records = load_data(config.kind, config.source, progress)
    return [*old, choose_by_labels(records, config.split.only_labels, config.split.without_labels)]


def features_of_parts(model: HashModel, parts: Sequence[Records], settings: TrainSettings, stages: Stages) -> Records:
    """`feature_records` of joined collections; each has a cache of its own, which what came before has filled."""
    return join_records([feature_records(model, part, settings, stages) for part in parts])


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
    return carry_out(config, folder, resume, lambda: _train(config, folder, resume, stages))


def carry_out(config: RunConfig, folder: Path, resume: bool, job: Callable[[], HashModel]) -> dict[str, Any]:
    """Hold and claim a run's folder for ``config``, and unless the run is finished do ``job`` there and save the model
    that it trains as the run's; returns and raises as `start_run`."""
    with (
        joined(local_device(pick_device(config.train.device))),
        _lock(folder) if launched_rank() == 0 else nullcontext(),
    ):
        if rank() == 0:
            _claim(folder, config, resume)
        wait_for_all()
        if not from_first((folder / "model" / "config.json").exists()):
            model = job()
            if rank() == 0:
                model.save_pretrained(folder / "model", model_card_kwargs=_card_facts(config, folder))
            wait_for_all()
    log = read_log(folder / "log.jsonl")
    validations = [entry["validation"] for entry in log if "validation" in entry]
    return {
        "run": str(folder),
        "epochs": len(log),
        "loss": log[-1]["loss"],
        "validation": validations[-1] if validations else {},
        "problems": (folder / "problems.txt").read_text(encoding="utf-8").splitlines(),
    }


def _train(config: RunConfig, folder: Path, resume: bool, stages: Stages) -> HashModel:
    parts = load_parts(config)
    records = join_records(parts)
    settings = config.split.model_dump(mode="json")
    splits = keep_splits(folder, records, lambda: draw_run_splits(config, parts), settings, resume)
    describe_run(config, folder, records.problems)
    loss = create_loss(config, len(records.label_names))
    if config.extend is not None:
        return _extend(config, config.extend, folder, parts, records, splits, loss, resume, stages)
    labels = torch.from_numpy(records.labels[splits.train])
    train_records = records.take(splits.train)
    trainee = prepare(config, create_model(config, train_records), parts, records, splits.train, stages)
    return fit(config, folder, trainee, splits, loss, labels, resume, stages)


def _extend(
    config: RunConfig,
    extend: ExtendSettings,
    folder: Path,
    parts: Sequence[Records],
    records: Records,
    splits: Splits,
    loss: nn.Module,
    resume: bool,
    stages: Stages,
) -> HashModel:
    """`_train` from the weights of another run on, whose codes stay valid; see `extension`."""
    check_extension(config, loss, parts)
    n_old = sum(len(part) for part in parts[:-1])
    rows = training_rows(splits, n_old, extend, config.train.seed)
    trainee = prepare(config, extended_model(extend), parts, records, rows, stages)
    light, features = trainee.light, trainee.features
    if rank() == 0:
        store_codes(config, folder, light, records, features, splits, n_old, stages("encode old items"))
    wait_for_all()
    stored = stored_codes(folder)
    assert stored is not None
    loss = extension_loss(config, loss, light.modalities, stored, records, splits, rows, n_old)
    labels = torch.from_numpy(records.labels[rows])
    model = fit(config, folder, trainee, splits, loss, labels, resume, stages, stored)
    if rank() == 0:
        describe_extension(config, folder, light, parts, features, splits, rows)
    return model


def draw_run_splits(config: RunConfig, parts: Sequence[Records]) -> Splits:
    """The partitions of a run; of an extension the old items keep those that they had."""
    new = make_splits(config.split, parts[-1])
    if config.extend is None:
        return new
    old = join_records(parts[:-1])
    return join_splits(load_splits(config.extend.run / "splits.json", old), new, len(old))


def keep_splits(
    folder: Path, records: Records, make: Callable[[], Splits], settings: dict[str, Any], resume: bool
) -> Splits:
    """The partitions in a run's ``splits.json``: written there by the first process, or to ``resume`` with as they are.

    Args:
        folder: a run's folder.
        records: what is parted.
        make: makes the partitions.
        settings: how they are made, kept in the file.
        resume: take those that are there.
    """
    path = folder / "splits.json"
    if rank() == 0 and not (resume and path.exists()):
        save_splits(make(), records, path, settings)
    wait_for_all()
    return load_splits(path, records)


def describe_run(config: RunConfig, folder: Path, problems: Sequence[str]) -> None:
    """Write ``problems.txt`` and ``environment.json``."""
    if rank() == 0:
        write_text(folder / "problems.txt", "".join(f"{line}\n" for line in problems))
        device = local_device(pick_device(config.train.device))
        record_environment(folder / "environment.json", environment(device, world_size()))


@dataclass(frozen=True)
class Trainee:
    """A model with what it is trained on.

    Attributes:
        model: what is trained: where inputs do not come ``online`` that is ``light``, and the memory of the backbone
            is free again.
        light: the same model without frozen backbones, on features.
        features: all rows of the collection, as ``light`` takes them.
        sources: inputs of the training rows, as ``model`` takes them.
    """

    model: HashModel
    light: HashModel
    features: Records
    sources: dict[str, Source]


def prepare(
    config: RunConfig, model: HashModel, parts: Sequence[Records], records: Records, rows: Rows, stages: Stages
) -> Trainee:
    """Bring a model to its device, and make or read the features that it is trained and validated on.

    Args:
        config: what to do.
        model: untrained, or trained so far; the caller keeps no other reference to it, see `Trainee`.
        parts: the collection, see `load_parts`; the model has its modalities.
        records: the same, joined.
        rows: that are trained on.
        stages: where progress goes.
    """
    check_batch_size(len(rows), config.train.batch_size)
    model.to(local_device(pick_device(config.train.device)))
    mode = feature_mode(model, config.train)
    features = features_of_parts(model, parts, config.train, stages)
    sources = training_sources(model, records.take(rows), features.take(rows), mode, config.train, stages)
    light = model.on_features()
    return Trainee(model if mode == "online" else light, light, features, sources)


def _card_facts(config: RunConfig, folder: Path) -> dict[str, Any]:
    """What a model's card says of its training; of the data its kind alone, as paths are nobody else's business."""
    written = yaml.safe_load(config.to_yaml())
    hidden = {"device", "workers"}
    settings = {
        "data": {"kind": config.kind},
        "model": {"name": config.model_name, "n_bits": config.n_bits},
        "loss": written["loss"],
        "train": {key: value for key, value in written["train"].items() if key not in hidden},
    }
    log = read_log(folder / "log.jsonl")
    validation = log[-1].get("validation") if log else None
    return {"settings": settings, "epochs": len(log), "validation": validation}


def fit(
    config: RunConfig,
    folder: Path,
    trainee: Trainee,
    splits: Splits,
    loss: nn.Module,
    targets: torch.Tensor,
    resume: bool,
    stages: Stages,
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
        stages: where progress goes.
        stored: codes that old items of the retrieval set have, whatever the model makes of them now.
    """
    validate = _validation(trainee.light, trainee.features, splits, config.train, stages, stored)
    stage = stages(f"train {config.loss_name}")
    train(trainee.model, loss, trainee.sources, targets, config.train, folder, validate, stage, resume)
    return trainee.model


def _validation(
    light: HashModel,
    features: Records,
    splits: Splits,
    settings: TrainSettings,
    stages: Stages,
    stored: CodeSet | None = None,
) -> Callable[[HashModel], Validation] | None:
    """A function that gives tie-aware mAP by task on V_q and V_r; None where there are no validation rows.

    It encodes with ``light``, whose trained parts are those of the model that it is called with. Old items of V_r keep
    their ``stored`` codes.
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
    fixed = np.isin(splits.validation_retrieval, splits.retrieval[: len(stored) if stored else 0])
    place = np.searchsorted(splits.retrieval, splits.validation_retrieval[fixed])

    def validate(_: HashModel) -> Validation:
        codes = {role: encode(light) for role, encode in encoders.items()}
        if stored:
            for modality in light.modalities:
                codes["database"][modality][fixed] = stored.codes[modality][place]

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
