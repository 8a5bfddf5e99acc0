"""From a configuration to a run's folder, and from a run's folder to figures and codes."""

import fcntl
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from channelhash.codeset import CodeSet
from channelhash.config import RunConfig, SplitSettings, read_config
from channelhash.data import DATA_KINDS
from channelhash.data.records import Records
from channelhash.data.splits import Splits, draw_splits, load_splits, save_splits
from channelhash.errors import InputError
from channelhash.files import write_text
from channelhash.losses import LOSSES
from channelhash.metrics import HammingHistogram, evaluate, hamming_histogram
from channelhash.models import MODELS, HashModel, load_model
from channelhash.models.hash_model import Progress
from channelhash.seeds import derive_seed
from channelhash.settings import Settings
from channelhash.training.batches import check_batch_size, prepare_inputs
from channelhash.training.trainer import Validation, pick_device, read_log, takes_anchor, train

#: Called with the name of a stage; returns that stage's progress callback.
Stages = Callable[[str], Progress]


def _silent(stage: str) -> Progress:
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
    return MODELS[config.model_name].create(train_records, config.n_bits, **settings)


def create_loss(config: RunConfig) -> nn.Module:
    """The loss of a configuration."""
    settings = {name: getattr(config.loss, name) for name in type(config.loss).model_fields}
    kind = LOSSES[config.loss_name]
    if "n_bits" in inspect.signature(kind).parameters:
        settings["n_bits"] = config.n_bits
    return kind(**settings)


def start_run(config: RunConfig, folder: Path, resume: bool = False, stages: Stages = _silent) -> dict[str, Any]:
    """Train what ``config`` says into ``folder`` and evaluate it on the validation partition.

    The folder gets ``config.yaml``, ``splits.json``, ``log.jsonl``, ``checkpoints/``, TensorBoard events and, at the
    end, ``model/`` (the last epoch's weights, the primary result of ``protocol.md`` § 6).

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
    with _lock(folder):
        _claim(folder, config, resume)
        if not (folder / "model" / "config.json").exists():
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


def plan_run(config: RunConfig) -> dict[str, Any]:
    """What `start_run` would do, without doing it: rows, parameters and steps."""
    records = load_records(config)
    splits = make_splits(config.split, records)
    check_batch_size(len(splits.train), config.train.batch_size)
    model = create_model(config, records.take(splits.train))
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    steps_per_epoch = len(splits.train) // config.train.batch_size
    if takes_anchor(create_loss(config)):
        steps_per_epoch *= len(model.modalities)
    return {
        "parameters": {
            "trainable": trainable,
            "frozen": sum(p.numel() for p in model.parameters() if not p.requires_grad),
        },
        "steps": steps_per_epoch * config.train.epochs,
        "epochs": config.train.epochs,
        "rows": splits.counts(),
        "device": str(pick_device(config.train.device)),
    }


def evaluate_run(
    folder: Path,
    split: str = "test",
    checkpoint: str = "last",
    leak_free: bool = False,
    stages: Stages = _silent,
) -> dict[str, Any]:
    """All figures of a finished run, for every task.

    The codes are written to ``codes/<split>-query.parquet`` and ``codes/<split>-retrieval.parquet``, the figures to
    ``metrics.json``; codes that this very model has already written are not computed again.

    Args:
        folder: a run's folder.
        split: ``"test"`` (Q against R) or ``"validation"`` (V_q against V_r).
        checkpoint: ``"last"`` epoch, or ``"best"`` on validation.
        leak_free: leave the training rows out of the retrieval set (R∖T).
        stages: where progress goes.

    Returns:
        ``{"n_bits": k, "split": …, "checkpoint": …, "leak_free": …, "tasks": {task: figures}}``.
    """
    config = read_run_config(folder)
    model = load_model(folder / "checkpoints" / "best") if checkpoint == "best" else load_model(folder)
    model.to(pick_device(config.train.device))
    records = load_records(config)
    splits = load_splits(folder / "splits.json", records)
    if split == "test":
        rows = {"query": splits.query, "retrieval": splits.retrieval}
    else:
        rows = {"query": splits.validation_query, "retrieval": splits.validation_retrieval}
    if not all(len(part) for part in rows.values()):
        raise InputError(f"{folder / 'splits.json'}: the {split} partition is empty; train with fewer data.train rows")
    fingerprint = model.fingerprint()
    name = split if checkpoint == "last" else f"{split}-{checkpoint}"
    codes = {}
    for role, part in rows.items():
        path = folder / "codes" / f"{name}-{role}.parquet"
        if path.exists() and (saved := CodeSet.load(path)).model == fingerprint and len(saved.ids) == len(part):
            codes[role] = saved
            continue
        codes[role] = encode_records(model, records.take(part), stages(f"encode {role}"), fingerprint)
        codes[role].save(path)
    database = codes["retrieval"]
    if leak_free:
        if split != "test":
            raise InputError("--leak-free: the validation partition holds no training rows anyway; leave it out")
        database = database.take(np.flatnonzero(~np.isin(rows["retrieval"], splits.train)))
    try:
        tasks = evaluate(codes["query"], database, cutoffs=config.evaluate.cutoffs)
    except ValueError as error:
        raise InputError(f"{folder}, {split} partition: {error}") from None
    result = {
        "n_bits": config.n_bits,
        "split": split,
        "checkpoint": checkpoint,
        "leak_free": leak_free,
        "tasks": tasks,
    }
    if split == "test" and checkpoint == "last" and not leak_free:
        write_text(folder / "metrics.json", json.dumps(result, indent=2))
    return result


def encode_records(
    model: HashModel, records: Records, progress: Progress | None = None, fingerprint: str | None = None
) -> CodeSet:
    """Codes of every modality that both the model and the records have, with labels, texts and picture paths."""
    modalities = [modality for modality in model.modalities if modality in records.items]
    texts = records.items.get("text")
    images = records.items.get("image")
    return CodeSet(
        records.ids,
        {modality: model.encode(modality, records.items[modality], progress) for modality in modalities},
        records.labels if records.label_names else None,
        model.n_bits,
        label_names=records.label_names,
        texts=None if texts is None or isinstance(texts, np.ndarray) else tuple(str(text) for text in texts),
        images=None if images is None or isinstance(images, np.ndarray) else tuple(str(path) for path in images),
        model=model.fingerprint() if fingerprint is None else fingerprint,
    )


def read_run_config(folder: Path) -> RunConfig:
    """The configuration of a run's folder."""
    if not (folder / "config.yaml").exists():
        raise InputError(f"{folder}: not a run's folder (no config.yaml); give the folder that `train` wrote")
    return read_config(folder / "config.yaml")


def _train(config: RunConfig, folder: Path, resume: bool, stages: Stages) -> None:
    records = load_records(config)
    splits_file = folder / "splits.json"
    if resume and splits_file.exists():
        splits = load_splits(splits_file, records)
    else:
        splits = make_splits(config.split, records)
        save_splits(splits, records, splits_file, config.split.model_dump(mode="json"))
    write_text(folder / "problems.txt", "".join(f"{line}\n" for line in records.problems))
    check_batch_size(len(splits.train), config.train.batch_size)
    train_records = records.take(splits.train)
    model = create_model(config, train_records)
    inputs = prepare_inputs(model, train_records, stages("read training rows"))
    train(
        model,
        create_loss(config),
        inputs,
        torch.from_numpy(train_records.labels),
        config.train,
        folder,
        _validation(model, records, splits, stages),
        stages(f"train {config.loss_name}"),
        resume,
    )
    model.save_pretrained(folder / "model")


def _validation(
    model: HashModel, records: Records, splits: Splits, stages: Stages
) -> Callable[[HashModel], Validation] | None:
    """A function that gives tie-aware mAP by task on V_q and V_r; None where there are no validation rows."""
    if not len(splits.validation_query) or not len(splits.validation_retrieval):
        return None
    parts = {"query": records.take(splits.validation_query), "database": records.take(splits.validation_retrieval)}
    if not relevant_pairs(parts["query"].labels, parts["database"].labels):
        raise InputError(
            f"none of the {len(parts['query'])} validation queries shares a label with the validation retrieval set; "
            "give more labelled rows, or set data.validation_queries to 0"
        )
    prepared = {role: prepare_inputs(model, part, stages("read validation rows")) for role, part in parts.items()}

    def validate(current: HashModel) -> Validation:
        codes = {role: current.encode_prepared(inputs) for role, inputs in prepared.items()}

        def histogram(query: str, database: str) -> HammingHistogram:
            return hamming_histogram(
                codes["query"][query],
                codes["database"][database],
                parts["query"].labels,
                parts["database"].labels,
                n_bits=current.n_bits,
            )

        return {
            f"{query}->{database}": histogram(query, database).mean_average_precision()
            for query in current.modalities
            for database in current.modalities
        }

    return validate


def relevant_pairs(query_labels: NDArray[np.bool_], database_labels: NDArray[np.bool_]) -> bool:
    """Whether any query shares a label with any database item."""
    return bool((query_labels.any(axis=0) & database_labels.any(axis=0)).any())


def _claim(folder: Path, config: RunConfig, resume: bool) -> None:
    """Write ``config.yaml`` into a new folder, or check that a run to resume is the same one."""
    path = folder / "config.yaml"
    if not path.exists():
        if any(entry.name != ".lock" for entry in folder.iterdir()):
            raise InputError(f"{folder}: is not empty and not a run's folder; choose another --out")
        write_text(path, config.to_yaml())
    elif not resume:
        raise InputError(f"{folder}: already holds a run; add --resume to go on with it, or choose another --out")
    elif path.read_text(encoding="utf-8") != config.to_yaml():
        raise InputError(
            f"{path}: was made with another configuration ({_difference(path, config)}); choose another --out"
        )


def _difference(path: Path, config: RunConfig) -> str:
    old, new = path.read_text(encoding="utf-8").splitlines(), config.to_yaml().splitlines()
    changed = [line.strip() for line in new if line not in old]
    return "; ".join(changed[:3]) or "keys were left out"


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Hold a run's folder; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"{folder}: another process is working in this folder; wait for it to end") from None
        yield
