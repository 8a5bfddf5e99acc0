"""Train a model from a configuration into a run's folder, or estimate what that takes."""

import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from channelhash.config import RunConfig, make_config, read_config
from channelhash.data.collection import Collection
from channelhash.data.records import Items, Records
from channelhash.data.splits import Splits
from channelhash.errors import InputError, naming
from channelhash.losses import HashLoss, make_loss, resolve_loss
from channelhash.models import HashModel, resolve_model
from channelhash.runs.extend import extend
from channelhash.runs.folder import Run, claim_folder, describe_run, keep_splits, read_run, save_model
from channelhash.training.distributed import local_device
from channelhash.training.inputs import Source, TrainingSet, epoch_steps, feature_mode, memory_batches, raw_source
from channelhash.training.trainer import Steps, Trainee, training_images
from channelhash.utils.machine import peak_bytes
from channelhash.utils.progress import StageProgress, no_stage_progress
from channelhash.utils.seeds import derive_seed, generator
from channelhash.utils.typed_settings import apply_overrides, check_kind, trusting


def train(
    config: str | Path | Mapping[str, Mapping[str, Any]],
    overrides: Sequence[str] = (),
    *,
    out: str | Path | None = None,
    resume: bool = False,
    trust_code: bool = False,
    progress: StageProgress = no_stage_progress,
) -> Run:
    """Train a model and evaluate it on the validation split, as ``channelhash train`` does.

    Args:
        config: a YAML file, or its sections ``data``, ``model``, ``loss``, ``train`` … as a mapping.
        overrides: each ``"section.key=value"``, like the option ``--set``.
        out: the run's folder; ``runs/<name of the file>`` by default.
        resume: go on with a run that was interrupted. A finished run is left as it is.
        trust_code: consent to code of this machine (``python:module:NAME``) that only the folder of a run that is
            extended names. Code that ``config`` names is your own word.
        progress: stage -> its callback.

    Raises:
        InputError: the configuration, the overrides or the data cannot be used, the folder is in use or holds another
            run, ``out`` is missing where ``config`` is a mapping, or an extended run names code that is not trusted.
        JobError: the loss became NaN, or memory ran out.

    Example::

        run = ch.train("configs/table.yaml", ["data.path=items.csv", "train.epochs=30"])
        run.validation["text->image"], run.load_model()
    """
    if isinstance(overrides, str):
        raise InputError(f"overrides: {overrides!r} is one string; give a list, such as ['train.epochs=3']")
    if isinstance(config, Mapping):
        if out is None:
            raise InputError("out: a configuration that is no file has no name to take; name the run's folder")
        sections = {name: dict(keys) for name, keys in config.items()}
        apply_overrides(sections, *overrides)
        resolved = make_config(sections)
    else:
        resolved = read_config(Path(config), overrides)
        out = out or Path("runs") / Path(config).stem
    with trusting(trust_code):
        return start_run(resolved, Path(out), resume, progress)


def start_run(
    config: RunConfig, folder: Path, resume: bool = False, progress: StageProgress = no_stage_progress
) -> Run:
    """Do what `train` does, for a checked configuration.

    The folder gets ``config.yaml``, ``splits.json``, ``environment.json``, ``log.jsonl``, ``checkpoints/``, TensorBoard
    events and, at the end, ``model/`` (the last epoch's weights, the primary result of ``protocol.md`` § 6).
    """
    with trusting(config.python_names), claim_folder(config, folder, resume) as is_new:
        if is_new:
            save_model(_train(config, folder, progress), config, folder)
    return read_run(folder)


def _train(config: RunConfig, folder: Path, progress: StageProgress) -> HashModel:
    collection = Collection.load(config.sources)
    records = collection.records
    settings = config.split.model_dump(mode="json")
    splits = keep_splits(folder, records, lambda: _draw_splits(config, collection), settings)
    describe_run(config, folder, records.problems)
    loss = create_loss(config, len(records.label_names))
    _check_pairs(config, records)
    if config.extend is not None:
        return extend(config, collection, splits, loss, folder, progress)
    model = create_model(config, records.take(splits.train))
    labels = torch.from_numpy(_noisy_labels(records.labels[splits.train], config.train.label_noise, config.train.seed))
    trainee = Trainee.prepare(model, collection, splits.train, config.train, progress)
    del model  # and with it a frozen backbone, whose features are computed
    return trainee.fit(loss, labels, splits, folder, progress)


def _draw_splits(config: RunConfig, collection: Collection) -> Splits:
    """Return the splits of a run; in an extension the old items keep theirs."""
    new = config.split.draw(collection.new)
    if config.extend is None:
        return new
    old = Collection(collection.parts[:-1]).records
    return Splits.load(config.extend.run / "splits.json", old).join(new, len(old))


def _noisy_labels(labels: NDArray[np.bool_], share: float, seed: int) -> NDArray[np.bool_]:
    """Give a share of the rows, drawn by ``seed``, the labels of another row each.

    How frequent labels are, and which occur together, stays the same up to chance. Some rows get labels equal to their
    own.

    >>> labels = np.eye(4, dtype=bool)
    >>> int((_noisy_labels(labels, 0.5, seed=0) != labels).any(axis=1).sum())
    2
    """
    n = len(labels)
    random = generator(seed, "label noise")
    chosen = random.permutation(n)[: round(share * n)]
    others = (chosen + random.integers(1, max(n, 2), size=len(chosen))) % n
    result = labels.copy()
    result[chosen] = labels[others]
    return result


#: Items that frozen encoders are timed with on a CPU, where they take long enough, and on a GPU, which has to be busy.
_FEW = {"cpu": 8, "cuda": 64}


def plan_run(config: RunConfig) -> dict[str, Any]:
    """Return what `train.start_run` would take, without writing anything.

    A model encodes a few real training rows and takes two steps on a batch of them; then it is discarded.
    """
    if config.extend is not None:
        raise InputError("--dry-run: plans a training from the start, this configuration extends a run; leave it out")
    records, settings = Collection.load(config.sources).records, config.train
    splits = config.split.draw(records)
    _check_pairs(config, records)
    train = records.take(splits.train)
    images = training_images(train, settings)
    model = create_model(config, train).to(local_device(settings.device))
    parameters = {"trainable": 0, "frozen": 0}
    for values in model.parameters():
        parameters["trainable" if values.requires_grad else "frozen"] += values.numel()
    mode, batch = feature_mode(model, settings), train.take(np.arange(settings.batch_size))
    fixed = {name: frozen for name in model.modalities if mode != "online" and (frozen := model.branch(name).fixed)}
    features, sources = 0.0, dict[str, Source]()
    for name in model.modalities:
        if name not in fixed:
            sources[name] = raw_source(model, name, batch, len(train), settings)
            continue
        items = batch.items[name][: _FEW.get(model.device.type, 8)]

        def encode(name: str = name, items: Items = items) -> None:
            fixed[name](model.prepare(name, items).to(model.device))

        draws = settings.epochs * len(train) if mode == "bank" and name == "image" else 0
        features += _seconds(encode, model.device) / len(items) * (len(records) + draws)
        sources[name] = partial(memory_batches, torch.randn(len(batch), fixed[name].n_features), settings)
    trained = (model.on_features() if fixed else model).to(model.device).train()
    loss = create_loss(config, batch.labels.shape[1])
    steps = Steps(trained, loss, TrainingSet(sources, torch.from_numpy(batch.labels)), settings)
    epoch = settings.epochs // 2  # which is augmented, if any is
    step = _seconds(lambda: steps.run(steps.batches(epoch)), model.device) / max(1, len(steps.anchors))
    n_steps = len(list(epoch_steps(len(train), settings, 0, steps.anchors, images))) * settings.epochs
    times = {"step": step, "features": features, "training": step * n_steps, "total": features + step * n_steps}
    peak = torch.cuda.max_memory_allocated(model.device) if model.device.type == "cuda" else peak_bytes()
    return {
        "parameters": parameters,
        "steps": n_steps,
        "epochs": settings.epochs,
        "rows": splits.counts(),
        "device": str(model.device),
        "features": mode,
        "peak_mb": None if peak is None else round(peak / 1e6, 1),
        "seconds": {name: round(value, 4) for name, value in times.items()},
    }


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return how long ``work`` takes: the first time warms up, the best of the next ones within a second counts."""
    times: list[float] = []
    while len(times) < 2 or (len(times) < 6 and sum(times[1:]) < 1):
        began = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - began)
    return min(times[1:])


def create_model(config: RunConfig, train_records: Records) -> HashModel:
    """Return the untrained model of a configuration; its weights are drawn from ``train.seed``.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from channelhash.lab.demo import demo_config
    >>> records = Records(("a", "b"), {"text": ("a dog", "a dog")}, np.ones((2, 1), dtype=bool), ("dog",))
    >>> create_model(demo_config(Path("demo"), "dsch", quick=True), records).modalities
    ('text',)
    """
    torch.manual_seed(derive_seed(config.train.seed, "weights"))
    kind, name = resolve_model(config.model_name), f"model.name {config.model_name}"
    model = check_kind(kind.create(train_records, config.n_bits, **vars(config.model)), HashModel, f"{name}: create")
    with naming(f"{name}: architecture has to be JSON, and the arguments of build", TypeError):
        inspect.signature(kind.build).bind(**json.loads(json.dumps(model.architecture)))
    model.name = config.model_name  # under which a saved model is built again, also one's own
    model.set_precision(config.train.precision)
    return model


def create_loss(config: RunConfig, n_labels: int) -> HashLoss:
    """Return the loss of a configuration for ``n_labels`` labels; its parameters are drawn from ``train.seed``.

    >>> from pathlib import Path
    >>> from channelhash.lab.demo import demo_config
    >>> type(create_loss(demo_config(Path("demo"), "tdsrdh", quick=True), n_labels=3)).__name__
    'TDSRDHLoss'
    """
    if resolve_loss(config.loss_name).needs_teacher:
        raise InputError(f"loss.name: {config.loss_name!r} takes a teacher, not labels; use `channelhash distill`")
    torch.manual_seed(derive_seed(config.train.seed, "loss"))
    return make_loss(config.loss_name, config.n_bits, n_labels, **vars(config.loss) | vars(config.terms))


def _check_pairs(config: RunConfig, records: Records) -> None:
    """Check that records in one modality are not to be learned from pairs.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from channelhash.lab.demo import demo_config
    >>> records = Records(("a", "b"), {"text": ("a dog", "a dog")}, np.ones((2, 1), dtype=bool), ("dog",))
    >>> _check_pairs(demo_config(Path("demo"), "dsch", quick=True), records)
    """
    if len(records.items) > 1:
        return
    only = next(iter(records.items))
    terms = config.terms.model_dump()
    if config.loss_name == "contrastive" or terms["contrastive"] or terms["pairs"]:
        key = "name: contrastive" if config.loss_name == "contrastive" else "pairs" if terms["pairs"] else "contrastive"
        raise InputError(f"loss.{key}: learns from pairs of an image and a text, and there are only {only}s")
    if not records.label_names:
        raise InputError(f"the data has only {only}s and no labels: nothing says which are alike; add labels or pairs")
